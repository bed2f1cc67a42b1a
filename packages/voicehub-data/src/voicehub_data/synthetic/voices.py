"""The speakers of the synthetic corpus: an accent, a voice variant, a speed and a pitch each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Voice:
    """One speaker.

    Attributes:
        name: speaker id written to the manifest.
        espeak_name: language and variant as espeak-ng names them, e.g. ``en-us+f2``.
        rate: words per minute.
        pitch: base pitch, 0 to 100.
        pitch_range: how far the intonation swings, 0 to 100.
    """

    name: str
    espeak_name: str
    rate: int
    pitch: int
    pitch_range: int


TRAINING_VOICES: tuple[Voice, ...] = (
    Voice("us-plain", "en-us", 165, 50, 50),
    Voice("us-f1", "en-us+f1", 175, 48, 60),
    Voice("gb-f2", "en+f2", 160, 55, 45),
    Voice("us-f3", "en-us+f3", 185, 60, 55),
    Voice("scots-f5", "en-gb-scotland+f5", 155, 45, 50),
    Voice("rp-f1", "en-gb-x-rp+f1", 170, 62, 40),
    Voice("us-m1", "en-us+m1", 170, 40, 50),
    Voice("gb-m2", "en+m2", 180, 45, 60),
    Voice("rp-m3", "en-gb-x-rp+m3", 160, 38, 45),
    Voice("us-m4", "en-us+m4", 190, 50, 40),
    Voice("lancashire-m6", "en-gb-x-gbclan+m6", 165, 42, 55),
    Voice("us-m8", "en-us+m8", 150, 35, 50),
    Voice("caribbean-m1", "en-029+m1", 170, 47, 50),
    Voice("us-alicia", "en-us+Alicia", 165, 52, 50),
)
"""Every voice that training may hear."""

UNSEEN_VOICES: tuple[Voice, ...] = (
    Voice("us-f4", "en-us+f4", 172, 53, 50),
    Voice("gb-m7", "en+m7", 168, 44, 50),
)
"""Voices kept for evaluation: neither their variants nor their settings occur in training."""
