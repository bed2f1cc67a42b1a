"""Which frames are valid, and layers that see no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from voicehub_xvector.head_config import Norm


def frame_mask(lengths: Tensor, frames: int) -> Tensor:
    """Return bool (B, frames), True at the first ``lengths`` frames of each row."""
    return torch.arange(frames, device=lengths.device) < lengths[:, None]


def zero_padding(frames: Tensor, lengths: Tensor) -> Tensor:
    """Return (B, C, …, T) with zeros behind each row's length."""
    mask = frame_mask(lengths, frames.shape[-1])
    shape = (mask.shape[0], *(1,) * (frames.dim() - 2), mask.shape[1])
    return frames.masked_fill(~mask.view(shape), 0.0)


class MaskedBatchNorm(nn.Module):
    """Batch normalisation whose statistics are those of the valid frames alone.

    Names and values of its state are those of ``torch.nn.BatchNorm1d``, whose output it gives
    where nothing is padded.

    Args:
        channels: C of (B, C, …, T).
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Normalise (B, C, …, T); ``lengths`` None takes every frame for valid."""
        if not self.training:
            return self._native(frames, training=False)
        self.num_batches_tracked.add_(1)
        if lengths is None or _nothing_padded(lengths, frames.shape[-1]):
            return self._native(frames, training=True)
        mean, variance = self._statistics(frames, lengths)
        scale = self.weight * (variance + self.eps).rsqrt()
        shape = (1, -1, *(1,) * (frames.dim() - 2))
        return frames * scale.view(shape) + (self.bias - mean * scale).view(shape)

    def _native(self, frames: Tensor, *, training: bool) -> Tensor:
        return nn.functional.batch_norm(
            frames, self.running_mean, self.running_var, self.weight, self.bias,
            training, self.momentum, self.eps,
        )  # fmt: skip

    def _statistics(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        over = [0, *range(2, frames.dim())]
        inner = frames[0, 0].numel() // frames.shape[-1]
        count = (lengths.sum() * inner).clamp(min=1).to(frames.dtype)
        mean = zero_padding(frames, lengths).sum(over) / count
        centred = frames - mean.view(1, -1, *(1,) * (frames.dim() - 2))
        variance = zero_padding(centred, lengths).square().sum(over) / count
        with torch.no_grad():
            unbiased = variance * (count / (count - 1).clamp(min=1))
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return mean, variance


def _nothing_padded(lengths: Tensor, frames: int) -> bool:
    """Known without waiting for a device only where the lengths are on the CPU."""
    return lengths.device.type == "cpu" and bool((lengths >= frames).all())


class FrameNorm(nn.Module):
    """Layer normalisation over the channels of each frame of (B, C, T)."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=eps)

    def forward(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Normalise; ``lengths`` is not needed."""
        normed: Tensor = self.norm(frames.transpose(1, 2)).transpose(1, 2)
        return normed


def build_norm(kind: Norm, channels: int) -> MaskedBatchNorm | FrameNorm:
    """Return the normalisation of a configuration."""
    return MaskedBatchNorm(channels) if kind == "batch" else FrameNorm(channels)
