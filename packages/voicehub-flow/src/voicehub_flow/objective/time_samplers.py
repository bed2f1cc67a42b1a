"""Where on the path training looks: distributions of t."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class TimeSampler(Protocol):
    """Draws t in (0, 1)."""

    def sample(
        self, shape: int | Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        """Return float32 times of a shape, on the CPU.

        Args:
            shape: of what is returned.
            generator: what is drawn from; key it by sample (``torch_generator``) where draws must
                not depend on batches and processes. None takes torch's global one.
        """


@dataclass(frozen=True)
class UniformTime:
    """t ~ U(0, 1): the choice of F5-TTS."""

    def sample(
        self, shape: int | Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        """See :class:`TimeSampler`."""
        return torch.rand(_shape(shape), generator=generator)


@dataclass(frozen=True)
class LogitNormalTime:
    """t = sigmoid(z), z ~ N(mean, scale^2) (Esser et al. 2024): more of the middle of the path.

    Attributes:
        mean: of z; over 0 looks nearer to the data.
        scale: standard deviation of z.
    """

    mean: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ValueError(f"scale {self.scale} of a logit-normal time must be over 0")

    def sample(
        self, shape: int | Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        """See :class:`TimeSampler`."""
        drawn = torch.randn(_shape(shape), generator=generator)
        return torch.sigmoid(self.mean + self.scale * drawn)


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
