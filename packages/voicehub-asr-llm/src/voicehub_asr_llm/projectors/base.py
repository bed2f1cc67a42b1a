"""What all projectors share: the length formula, stacking, the output scale."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

Lengths = TypeVar("Lengths")


def projected_lengths(frames: Lengths, stride: int) -> Lengths:
    """Return the inputs of the decoder that so many frames give: ``(L - k) // k + 1``, none below.

    Takes and returns an ``int`` or an integer tensor.
    """
    given: Any = frames
    return given // stride  # type: ignore[no-any-return]


class Projected(NamedTuple):
    """Inputs of the decoder.

    Attributes:
        outputs: (B, most outputs, decoder's width).
        costs: what the projector adds to the loss of each utterance, float (B,); None for nothing.
    """

    outputs: Tensor
    costs: Tensor | None = None


class Projector(nn.Module, ABC):
    """Base of the projectors.

    Args:
        stride: frames that become one output.

    Attributes:
        output_scale: multiplies the outputs; set once by calibration, saved, and never trained.
    """

    output_scale: Tensor

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.register_buffer("output_scale", torch.ones(()))

    def forward(self, states: Tensor, frames: Tensor) -> Projected:
        """Project.

        Args:
            states: floating (B, frames, encoder's width); the projector computes in its own dtype.
            frames: valid frames, int64 (B,).
        """
        states = states.to(self.output_scale.dtype)
        outputs, costs = self._project(states, frames)
        return Projected(outputs * self.output_scale.to(outputs.dtype), costs)

    @abstractmethod
    def _project(self, states: Tensor, frames: Tensor) -> Projected:
        """Project, unscaled."""

    def stacked(self, states: Tensor) -> Tensor:
        """Put ``stride`` consecutive frames side by side: (B, outputs, stride * width)."""
        batch, frames, width = states.shape
        outputs = projected_lengths(frames, self.stride)
        kept = states[:, : outputs * self.stride]
        return kept.reshape(batch, outputs, self.stride * width)


class RMSNorm(nn.Module):
    """Root-mean-square normalisation with a gain, computed in at least float32.

    Args:
        size: of the last dimension.
    """

    def __init__(self, size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., size)."""
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        normed = wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (normed * self.weight).to(x.dtype)
