"""Utterances that a benchmark makes for itself: a harmonic voice that reads the same words."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np

WORDS = "the quick brown fox jumps over a lazy dog while seven wizards boil black tea at dawn "


def write_corpus(
    folder: Path,
    count: int,
    *,
    rate: int,
    shortest: float = 3.0,
    longest: float = 6.0,
    speakers: int = 0,
) -> Path:
    """Write WAV files of evenly spread durations and their manifest, and return that.

    Args:
        folder: exists.
        count: utterances.
        rate: Hz.
        shortest, longest: seconds.
        speakers: who speak in turn, each at a pitch of its own; 0 names none.
    """
    draw = np.random.default_rng(0)
    rows = []
    for number in range(count):
        seconds = shortest + (longest - shortest) * number / max(1, count - 1)
        at = np.arange(int(seconds * rate)) / rate
        speaker = number % max(1, speakers)
        pitch = 120.0 + 20.0 * speaker + 30.0 * np.sin(2 * np.pi * 0.7 * at)
        phase = 2 * np.pi * np.cumsum(pitch) / rate
        voice = sum(np.sin(k * phase) / k for k in range(1, 20))
        sound = 0.1 * voice * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * at))
        sound += 0.01 * draw.standard_normal(len(at))
        path = folder / f"{number}.wav"
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes((sound * 32767).astype("<i2").tobytes())
        text = (WORDS * 2)[: int(14 * seconds)].strip()
        duration = len(at) / rate
        row = {"id": str(number), "audio_filepath": str(path), "duration": duration, "text": text}
        rows.append({**row, "speaker": f"speaker{speaker}"} if speakers else row)
    manifest = folder / "train.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return manifest
