"""Augmentations whose draws are a function of (seed, epoch, draw, sample id, transform)."""

from __future__ import annotations

from voicehub_data.augment.base import Augmentation, Compose, draw_generator
from voicehub_data.augment.build import audio_augmentation, feature_augmentation
from voicehub_data.augment.environment import Noise, Reverb
from voicehub_data.augment.signal import Gain, Speed
from voicehub_data.augment.silence import SilenceInjection, silence_injection
from voicehub_data.augment.spec_augment import MaskSpans, SpecAugment

__all__ = [
    "Augmentation",
    "Compose",
    "Gain",
    "MaskSpans",
    "Noise",
    "Reverb",
    "SilenceInjection",
    "SpecAugment",
    "Speed",
    "audio_augmentation",
    "draw_generator",
    "feature_augmentation",
    "silence_injection",
]
