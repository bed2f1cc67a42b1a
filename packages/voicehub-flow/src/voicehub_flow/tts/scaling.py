"""Log-mel frames to the numbers that the flow works on, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

#: A bin that hardly moves is not blown up.
_SMALLEST = 1e-2


@dataclass(frozen=True)
class MelScaling:
    """Shift and scale of every mel bin.

    Attributes:
        mean, deviation: one number a bin; None leaves frames as they are.
    """

    mean: tuple[float, ...] | None = None
    deviation: tuple[float, ...] | None = None

    @classmethod
    def of(cls, clips: Iterable[Tensor]) -> MelScaling:
        """Mean and deviation over the frames of clips (frames, bins) each."""
        count, total, squares = 0, torch.zeros(1).double(), torch.zeros(1).double()
        for clip in clips:
            wide = clip.double()
            count += len(wide)
            total = total + wide.sum(0)
            squares = squares + wide.square().sum(0)
        mean = total / max(1, count)
        deviation = (squares / max(1, count) - mean.square()).clamp(min=0).sqrt()
        return cls(tuple(mean.tolist()), tuple(deviation.clamp(min=_SMALLEST).tolist()))

    def scaled(self, frames: Tensor) -> Tensor:
        """Log-mel frames (..., bins) for the flow."""
        if self.mean is None or self.deviation is None:
            return frames
        mean, deviation = frames.new_tensor(self.mean), frames.new_tensor(self.deviation)
        return (frames - mean) / deviation

    def restored(self, frames: Tensor) -> Tensor:
        """What the flow made as log-mel frames."""
        if self.mean is None or self.deviation is None:
            return frames
        return frames * frames.new_tensor(self.deviation) + frames.new_tensor(self.mean)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        if self.mean is None or self.deviation is None:
            return {}
        return {"mean": list(self.mean), "deviation": list(self.deviation)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MelScaling:
        """Read what ``to_dict`` returned."""
        if not values:
            return cls()
        return cls(tuple(values["mean"]), tuple(values["deviation"]))
