"""Clips of tones that spell letters: a corpus made in no time, for smoke runs of any family."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: One tone a letter, in Hz, for the lowest voice; the next ones are a sixth higher each.
TONES = {"a": 300.0, "b": 500.0, "c": 800.0, "d": 1300.0}


def spelt_by_tones(
    letters: Sequence[str],
    tones: Mapping[str, float],
    letter_seconds: float,
    rate: int,
    generator: np.random.Generator,
    *,
    level: float | NDArray[Any] = 0.3,
    pitch: float = 1.0,
) -> NDArray[np.float32]:
    """Return the sound that spells letters, with a little noise: float32 (samples,).

    Args:
        letters: In order.
        tones: Hz of each.
        letter_seconds: Length of a tone.
        rate: Hz.
        generator: Draws the noise.
        level: Greatest amplitude, or one for each sample of a tone.
        pitch: Factor on all tones.
    """
    time = np.arange(int(letter_seconds * rate)) / rate
    sound = np.concatenate([level * np.sin(2 * np.pi * pitch * tones[c] * time) for c in letters])
    return (sound + 0.003 * generator.standard_normal(len(sound))).astype(np.float32)


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
    level = 0.3 * np.hanning(int(letter_seconds * rate))
    rows = []
    for number in range(clips):
        voice = number % speakers
        spelt = generator.choice(list(TONES), size=letters)
        sound = spelt_by_tones(
            spelt, TONES, letter_seconds, rate, generator, level=level, pitch=1.2**voice
        )
        name = f"{number:03d}.wav"
        soundfile.write(directory / name, sound, rate, subtype="FLOAT")
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
