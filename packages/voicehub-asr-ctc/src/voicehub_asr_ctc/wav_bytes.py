"""A recording as a small WAV file, for reports that play it."""

from __future__ import annotations

import io
import wave

import numpy as np

from voicehub.models.results import PredictionRow
from voicehub_data.audio import load_audio

_RATE = 16000
_LONGEST_SECONDS = 20.0


def wav_bytes(row: PredictionRow) -> bytes:
    """Return 16-bit mono PCM at 16 kHz of at most the first 20 seconds.

    Raises:
        DataError: the audio cannot be read.
    """
    duration = _LONGEST_SECONDS if row.duration is None else min(row.duration, _LONGEST_SECONDS)
    audio = load_audio(
        str(row.audio_filepath), sample_rate=_RATE, offset=row.offset, duration=duration
    )
    samples = (np.clip(audio, -1.0, 1.0) * 32767.0).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes(samples.tobytes())
    return out.getvalue()
