"""Gain and speed: transforms that need nothing but the signal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.errors import ConfigurationError
from voicehub_data.audio import resample
from voicehub_data.augment.base import Augmentation

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Gain(Augmentation):
    """Multiply by 10^(g/20), g uniform in ``decibels``. Nothing is clipped: samples are floats."""

    def __init__(
        self,
        decibels: tuple[float, float] = (-6.0, 6.0),
        *,
        probability: float = 1.0,
        name: str = "gain",
    ) -> None:
        super().__init__(probability, name)
        self.decibels = ordered_range(decibels, f"{name}: decibels")

    def _transform(
        self, x: NDArray[np.float32], sample_rate: int, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        gain = generator.uniform(*self.decibels)
        return x * np.float32(10.0 ** (gain / 20.0))

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "decibels": list(self.decibels)}


class Speed(Augmentation):
    """Play faster or slower by resampling, which moves pitch with tempo (Ko et al. 2015).

    Args:
        factors: drawn with equal chance; 1.1 makes a clip 1.1 times shorter.
    """

    def __init__(
        self,
        factors: Sequence[float] = (0.9, 1.0, 1.1),
        *,
        probability: float = 1.0,
        name: str = "speed",
    ) -> None:
        super().__init__(probability, name)
        if not factors or not all(0.25 <= factor <= 4.0 for factor in factors):
            raise ConfigurationError(
                f"{name}: factors must be numbers between 0.25 and 4, got {list(factors)}."
            )
        self.factors = tuple(float(factor) for factor in factors)
        self.max_stretch = max(1.0, 1.0 / min(self.factors))

    def _transform(
        self, x: NDArray[np.float32], sample_rate: int, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        factor = self.factors[int(generator.integers(len(self.factors)))]
        return resample(x, round(sample_rate * factor), sample_rate)

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "factors": list(self.factors)}


def ordered_range(value: tuple[float, float], name: str) -> tuple[float, float]:
    """``(low, high)`` as floats.

    Raises:
        ConfigurationError: not two finite numbers in order.
    """
    try:
        low, high = (float(item) for item in value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name}: expected (low, high), got {value!r}.") from None
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        raise ConfigurationError(f"{name}: expected finite low <= high, got {value!r}.")
    return low, high
