"""From an :class:`~voicehub_data.config.AugmentConfig` to transforms."""

from __future__ import annotations

from voicehub_data.augment.base import Augmentation, Compose
from voicehub_data.augment.environment import Noise, Reverb
from voicehub_data.augment.signal import Gain, Speed
from voicehub_data.augment.spec_augment import SpecAugment
from voicehub_data.config import AugmentConfig


def audio_augmentation(config: AugmentConfig) -> Compose | None:
    """The transforms of audio that are configured, in order; None where there are none.

    Raises:
        ConfigurationError: a folder is missing or holds no audio.
    """
    transforms: list[Augmentation] = []
    if config.speed is not None:
        transforms.append(Speed(config.speed.factors, probability=config.speed.probability))
    if config.reverb is not None:
        transforms.append(Reverb(config.reverb.folder, probability=config.reverb.probability))
    if config.noise is not None:
        noise = config.noise
        transforms.append(Noise(noise.folder, noise.snr, probability=noise.probability))
    if config.gain is not None:
        transforms.append(Gain(config.gain.decibels, probability=config.gain.probability))
    return Compose(transforms) if transforms else None


def feature_augmentation(config: AugmentConfig) -> SpecAugment | None:
    """SpecAugment as configured, or None."""
    return None if config.spec_augment is None else SpecAugment(**config.spec_augment.model_dump())
