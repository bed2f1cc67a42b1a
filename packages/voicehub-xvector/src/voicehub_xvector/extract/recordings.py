"""From a manifest row to pieces of audio, never more than one piece of it in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voicehub_data.audio import audio_info, load_audio, resample
from voicehub_data.manifest import ManifestRow
from voicehub_xvector.extract.energy_vad import keep_speech

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class RecordingPiece:
    """A part of a recording.

    Attributes:
        audio: float32 (samples,) at the model's rate; what was kept of it.
        seconds: length in the file, at the file's rate, silence included.
    """

    audio: NDArray[np.float32]
    seconds: float


def read_pieces(
    row: ManifestRow, sample_rate: int, *, chunk_seconds: float, energy_vad: bool
) -> Iterator[RecordingPiece]:
    """Read a row in equal pieces of at most ``chunk_seconds``, each resampled on its own.

    Raises:
        DataError: the audio cannot be read.
    """
    info = audio_info(row.audio_filepath)
    rate, seconds = info.sample_rate, row.duration
    if seconds is None and info.frames >= 0:
        seconds = info.duration - row.offset
    # Counted in samples of the file, so that the pieces neither overlap nor leave one out.
    first, total = round(row.offset * rate), 0 if seconds is None else round(seconds * rate)
    count = max(1, math.ceil(total / (chunk_seconds * rate)))
    for number in range(count):
        start, stop = first + total * number // count, first + total * (number + 1) // count
        audio = load_audio(
            row.audio_filepath,
            sample_rate=None,
            offset=start / rate,
            duration=(stop - start) / rate if total else seconds,
        )
        for part in _within(audio, chunk_seconds * info.sample_rate):
            resampled = resample(part, info.sample_rate, sample_rate)
            kept = keep_speech(resampled, sample_rate) if energy_vad else resampled
            yield RecordingPiece(kept, len(part) / info.sample_rate)


def _within(audio: NDArray[np.float32], limit: float) -> list[NDArray[np.float32]]:
    """Equal parts of at most ``limit`` samples: of streams whose length was unknown before."""
    count = max(1, math.ceil(len(audio) / limit - 1e-6))
    return np.array_split(audio, count)
