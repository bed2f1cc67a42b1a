"""Small layers of the streams: modulation, gated feed-forwards, convolutions over masked steps."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def masked(steps: Tensor, mask: Tensor | None) -> Tensor:
    """Zero where the mask is false: a convolution would carry what lies there into valid steps."""
    return steps if mask is None else steps.masked_fill(~mask[..., None], 0.0)


def modulated(steps: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """``steps * (1 + scale) + shift``."""
    return steps * (1 + scale) + shift


class Modulation(nn.Module):
    """Adaptive layer norm (Peebles and Xie 2023): shifts, scales and gates of a condition.

    They start at zero, so that a block first passes on what it gets.

    Args:
        width: of the condition and of each part.
        parts: how many.
    """

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.linear = nn.Linear(width, parts * width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, condition: Tensor) -> tuple[Tensor, ...]:
        """Parts (batch, 1 or steps, width) of a condition of that shape."""
        return tuple(self.linear(functional.silu(condition)).chunk(self.parts, dim=-1))


class StepConv(nn.Module):
    """A convolution over steps (batch, steps, channels) that keeps their number.

    Args:
        before, after: channels.
        kernel: odd; 1 is a linear map.
        bias: whether it has one.
    """

    def __init__(self, before: int, after: int, kernel: int, *, bias: bool = True) -> None:
        super().__init__()
        self.kernel = kernel
        if kernel == 1:
            self.linear = nn.Linear(before, after, bias=bias)
            nn.init.xavier_uniform_(self.linear.weight)
            if bias:
                nn.init.zeros_(self.linear.bias)
        else:
            self.conv = nn.Conv1d(before, after, kernel, padding=kernel // 2, bias=bias)

    def forward(self, steps: Tensor, mask: Tensor | None = None) -> Tensor:
        """Steps; what the mask calls invalid counts as zero."""
        if self.kernel == 1:
            plain: Tensor = self.linear(steps)
            return plain
        found: Tensor = self.conv(masked(steps, mask).transpose(1, 2)).transpose(1, 2)
        return found


def inner_width(width: int, ratio: float, multiple: int) -> int:
    """Channels of a gated feed-forward: 2/3 of ``ratio * width``, rounded up to a multiple."""
    wanted = int(2 * int(width * ratio) / 3)
    return multiple * ((wanted + multiple - 1) // multiple)


class GatedFeedForward(nn.Module):
    """``down(silu(gate(x)) * up(x))`` (Shazeer 2020), each map a convolution over steps.

    Args:
        width: in and out.
        inner: between.
        kernel: of the maps; 1 for linear ones.
    """

    def __init__(self, width: int, inner: int, kernel: int = 1) -> None:
        super().__init__()
        self.gate = StepConv(width, inner, kernel, bias=False)
        self.up = StepConv(width, inner, kernel, bias=False)
        self.down = StepConv(inner, width, kernel, bias=False)

    def forward(self, steps: Tensor, mask: Tensor | None = None) -> Tensor:
        """Steps, each mixed with its neighbours where the kernel is wider than 1."""
        between = functional.silu(self.gate(steps, mask)) * self.up(steps, mask)
        found: Tensor = self.down(between, mask)
        return found


class InputProjection(nn.Module):
    """Features to the width of the streams: a map, a non-linearity, a gated feed-forward.

    Args:
        channels: of the features.
        width: of the streams.
        inner: of the feed-forward.
        kernels: of the map and of the feed-forward.
        activation: after the map.
    """

    def __init__(
        self, channels: int, width: int, inner: int, kernels: tuple[int, int], *, activation: bool
    ) -> None:
        super().__init__()
        self.map = StepConv(channels, width, kernels[0])
        self.feed = GatedFeedForward(width, inner, kernels[1])
        self.activation = activation

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """(batch, steps, width)."""
        steps = self.map(features, mask)
        if self.activation:
            steps = functional.selu(steps)
        found: Tensor = self.feed(steps, mask)
        return found


def attention(
    query: Tensor, key: Tensor, value: Tensor, valid: Tensor | None, head_dim: int
) -> Tensor:
    """Attention over all steps; keys that are not valid are seen by nobody.

    Args:
        query, key, value: (batch, heads, steps, head_dim).
        valid: bool (batch, steps), or None where all are.
        head_dim: of the heads.

    Returns:
        (batch, steps, heads * head_dim).
    """
    allowed = None if valid is None else valid[:, None, None, :]
    mixed = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, scale=head_dim**-0.5
    )
    return torch.flatten(mixed.transpose(1, 2), 2)
