"""Mean and deviation of every latent channel, gathered piece by piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from voicehub.errors import DataError


@dataclass(frozen=True, eq=False)
class ChannelStatistics:
    """Count, mean and sum of squared deviations of each channel (Chan et al. 1983).

    Attributes:
        count: frames.
        mean: float64 (channels,).
        squares: float64 (channels,), squared deviations from the mean, added up.
    """

    count: int
    mean: Tensor
    squares: Tensor

    @classmethod
    def of(cls, frames: Tensor) -> ChannelStatistics:
        """Of frames (n, channels)."""
        wide = frames.double()
        mean = wide.mean(0) if len(wide) else wide.new_zeros(wide.shape[1])
        return cls(len(wide), mean, (wide - mean).square().sum(0))

    def merged(self, other: ChannelStatistics) -> ChannelStatistics:
        """Of both together."""
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        squares = self.squares + other.squares
        squares = squares + apart.square() * (self.count * other.count / count)
        return ChannelStatistics(count, mean, squares)

    @property
    def deviation(self) -> Tensor:
        """float64 (channels,), with n - 1 below, as ``torch.std`` has it.

        Raises:
            DataError: there are fewer than two frames, or a channel never changes.
        """
        if self.count < 2:
            raise DataError("latent statistics need two frames or more.")
        deviation = (self.squares / (self.count - 1)).sqrt()
        flat = torch.nonzero(deviation <= 0).flatten().tolist()
        if flat:
            raise DataError(
                f"latent channels {flat[:8]} never change over {self.count:,} frames, so they "
                "cannot be normalised. Was the store extracted with more channels than the audio "
                "has?"
            )
        return deviation

    def to_json(self) -> dict[str, Any]:
        """JSON values, exact."""
        return {
            "count": self.count,
            "mean": self.mean.tolist(),
            "squares": self.squares.tolist(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ChannelStatistics:
        """What ``to_json`` returned."""
        mean, squares = (torch.tensor(values[k], dtype=torch.float64) for k in ("mean", "squares"))
        return cls(int(values["count"]), mean, squares)
