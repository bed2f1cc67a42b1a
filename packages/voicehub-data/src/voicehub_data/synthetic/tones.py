"""Clips of tones that spell letters: a corpus made in no time, for smoke runs of any family."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import soundfile

#: One tone a letter, in Hz, for the lowest voice; the next ones are a sixth higher each.
TONES = {"a": 300.0, "b": 500.0, "c": 800.0, "d": 1300.0}


def write_tone_corpus(
    directory: Path,
    *,
    clips: int = 12,
    speakers: int = 3,
    rate: int = 16000,
    letters: int = 6,
    letter_seconds: float = 0.2,
    seed: int = 0,
) -> Path:
    """Write WAV files and a manifest with ``id, audio_filepath, duration, text, speaker``.

    Args:
        directory: Made if it is not there.
        clips: How many; the speakers take turns.
        speakers: Voices, which differ in pitch.
        rate: Hz.
        letters: Of each text, in two words.
        letter_seconds: Length of a tone.
        seed: Of texts and noise.

    Returns:
        The manifest.
    """
    directory.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    time = np.arange(int(letter_seconds * rate)) / rate
    shape = 0.3 * np.hanning(len(time))
    rows = []
    for number in range(clips):
        voice = number % speakers
        spelt = generator.choice(list(TONES), size=letters)
        pitch = 1.2**voice
        sound = np.concatenate([shape * np.sin(2 * np.pi * pitch * TONES[c] * time) for c in spelt])
        sound = sound + 0.003 * generator.standard_normal(len(sound))
        name = f"{number:03d}.wav"
        soundfile.write(directory / name, sound.astype(np.float32), rate, subtype="FLOAT")
        half = letters // 2
        rows.append(
            {
                "id": f"tone-{seed}-{number}",
                "audio_filepath": name,
                "duration": len(sound) / rate,
                "text": f"{''.join(spelt[:half])} {''.join(spelt[half:])}",
                "speaker": f"voice-{voice}",
            }
        )
    manifest = directory / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return manifest
