"""Where a frame is and what time it is: rotary positions (Su et al. 2021), embedded t."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_THETA = 10_000.0
#: Angles of t at the largest frequency; t itself is in [0, 1].
_TIME_SCALE = 1_000.0


def rotations(steps: int, head_dim: int, scale: float, like: Tensor) -> Tensor:
    """Cosines and sines of positions, (2, steps, head_dim // 2).

    Args:
        steps: positions 0 to steps - 1.
        head_dim: channels of a head.
        scale: positions are multiplied by this: a stream of another rate counts in the latents'
            frames.
        like: gives device and, at least float32, dtype.
    """
    dtype = like.dtype if like.dtype == torch.float64 else torch.float32
    half = torch.arange(head_dim // 2, device=like.device, dtype=dtype)
    frequencies = torch.exp(-math.log(_THETA) * 2.0 * half / head_dim)
    places = scale * torch.arange(steps, device=like.device, dtype=dtype)
    angles = places[:, None] * frequencies
    return torch.stack((angles.cos(), angles.sin()))


def rotate(heads: Tensor, turned: Tensor) -> Tensor:
    """Turn each pair of channels by its position's angle.

    Args:
        heads: (batch, heads, steps, head_dim).
        turned: of :func:`rotations`.
    """
    cosine, sine = turned.to(heads.dtype)
    even, odd = heads[..., 0::2], heads[..., 1::2]
    pairs = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1)
    return pairs.flatten(-2)


class TimeEmbedding(nn.Module):
    """t as sines and cosines, through two linear maps.

    Args:
        width: of the result.
        size: numbers of the sines and cosines.
    """

    def __init__(self, width: int, size: int = 256) -> None:
        super().__init__()
        self.size = size
        self.first, self.second = nn.Linear(size, width), nn.Linear(width, width)
        for linear in (self.first, self.second):
            nn.init.normal_(linear.weight, std=0.02)

    def forward(self, time: Tensor) -> Tensor:
        """(batch, width) of times (batch,)."""
        weight = self.first.weight
        dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
        half = torch.arange(self.size // 2, device=time.device, dtype=dtype)
        frequencies = _TIME_SCALE * torch.exp(-math.log(_THETA) * 2.0 * half / self.size)
        angles = time.to(dtype)[:, None] * frequencies
        sines = torch.cat((angles.cos(), angles.sin()), -1).to(weight.dtype)
        embedded: Tensor = self.second(nn.functional.silu(self.first(sines)))
        return embedded
