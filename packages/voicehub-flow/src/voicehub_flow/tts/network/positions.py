"""Positions and times as numbers: sinusoids, and rotary embeddings of pairs of channels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_BASE = 10000.0


def time_sinusoids(time: Tensor, channels: int, scale: float = 1000.0) -> Tensor:
    """Sines, then cosines, of times (batch,): (batch, channels)."""
    half = channels // 2
    step = math.log(_BASE) / (half - 1)
    frequencies = torch.exp(-step * torch.arange(half, device=time.device, dtype=time.dtype))
    angles = scale * time[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


def place_sinusoids(count: int, channels: int, like: Tensor) -> Tensor:
    """Cosines, then sines, of places 0, 1, ...: (count, channels), of the type of ``like``."""
    angles = _angles(count, channels, like)
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def rotations(count: int, channels: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines that :func:`rotate` takes: (count, channels) each."""
    angles = _angles(count, channels, like).repeat_interleave(2, dim=-1)
    return angles.cos(), angles.sin()


def rotate(values: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Turn neighbouring pairs of channels by their place (Su et al. 2021).

    Args:
        values: (..., count, channels).
        turns: of :func:`rotations`.
    """
    cosines, sines = turns
    even, odd = values[..., 0::2], values[..., 1::2]
    turned = torch.stack((-odd, even), dim=-1).flatten(-2)
    return values * cosines + turned * sines


def _angles(count: int, channels: int, like: Tensor) -> Tensor:
    exponents = torch.arange(0, channels, 2, device=like.device, dtype=like.dtype) / channels
    places = torch.arange(count, device=like.device, dtype=like.dtype)
    return places[:, None] * _BASE**-exponents
