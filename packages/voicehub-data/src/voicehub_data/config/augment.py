"""Augmentations of training data, each off unless it is named."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field, field_validator

from voicehub_data.config.base import DataModel

Range = tuple[float, float]
Probability = Annotated[float, Field(ge=0, le=1)]


def _finite_range(value: Range) -> Range:
    low, high = value
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ValueError("expected [low, high], finite, low <= high")
    return value


class _TransformConfig(DataModel):
    probability: Probability = 1.0


class GainConfig(_TransformConfig):
    """Gain drawn uniformly in ``decibels`` [low, high]."""

    decibels: Range = (-6.0, 6.0)
    _range = field_validator("decibels")(_finite_range)


class SpeedConfig(_TransformConfig):
    """Speed (tempo and pitch together) drawn from ``factors``; over 1 is faster."""

    factors: Annotated[list[float], Field(min_length=1)] = Field(
        default_factory=lambda: [0.9, 1.0, 1.1]
    )

    @field_validator("factors")
    @classmethod
    def _sensible(cls, value: list[float]) -> list[float]:
        if not all(0.5 <= factor <= 2.0 for factor in value):
            raise ValueError("expected factors between 0.5 and 2")
        return value


class NoiseConfig(_TransformConfig):
    """Noise from a folder of recordings, at a signal-to-noise ratio drawn in ``snr`` decibels."""

    folder: str
    snr: Range = (5.0, 20.0)
    probability: Probability = 0.5
    _range = field_validator("snr")(_finite_range)


class ReverbConfig(_TransformConfig):
    """Reverberation: convolution with an impulse response drawn from a folder."""

    folder: str
    probability: Probability = 0.5


class SilenceConfig(DataModel):
    """Draws of training that become a recording without speech and an empty label.

    ``rate`` is their share, ``level`` the range of their root mean square in dB of full scale;
    ``folder`` may hold recorded noises, which are then used beside white noise.
    """

    rate: Annotated[float, Field(ge=0, lt=1)] = 0.0
    level: Range = (-70.0, -35.0)
    folder: str | None = None
    _range = field_validator("level")(_finite_range)


class SpecAugmentConfig(_TransformConfig):
    """Masks on features (Park et al. 2019): widths drawn up to the maxima, within valid frames.

    ``time_mask_max_fraction`` bounds each time mask to a share of the clip's own frames.
    """

    time_masks: Annotated[int, Field(ge=0)] = 2
    time_mask_frames: Annotated[int, Field(ge=0)] = 40
    time_mask_max_fraction: Annotated[float, Field(ge=0, le=1)] = 0.2
    frequency_masks: Annotated[int, Field(ge=0)] = 2
    frequency_mask_bins: Annotated[int, Field(ge=0)] = 15
    mask_value: float = 0.0


class AugmentConfig(DataModel):
    """Augmentations of training audio, applied in this order; absent ones are off."""

    speed: SpeedConfig | None = None
    reverb: ReverbConfig | None = None
    noise: NoiseConfig | None = None
    gain: GainConfig | None = None
    spec_augment: SpecAugmentConfig | None = None
