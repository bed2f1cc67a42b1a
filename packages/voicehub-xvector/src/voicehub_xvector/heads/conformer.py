"""Conformer blocks (Gulati et al. 2020) that see valid frames alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from voicehub_xvector.head_config import ConformerConfig
from voicehub_xvector.heads.base import Trunk, strided
from voicehub_xvector.masking import frame_mask


class FeedForward(nn.Module):
    """Half a step of a position-wise network."""

    def __init__(self, size: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.up = nn.Linear(size, inner)
        self.down = nn.Linear(inner, size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Takes and returns (B, T, H)."""
        hidden = self.dropout(F.silu(self.up(self.norm(x))))
        return x + 0.5 * self.dropout(self.down(hidden))


class RelativeAttention(nn.Module):
    """Self-attention with the relative positions of Dai et al. (2019)."""

    def __init__(self, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.width = heads, size // heads
        self.norm = nn.LayerNorm(size)
        self.qkv = nn.Linear(size, 3 * size)
        self.position = nn.Linear(size, size, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(heads, self.width))
        self.position_bias = nn.Parameter(torch.zeros(heads, self.width))
        self.out = nn.Linear(size, size)
        self.dropout = nn.Dropout(dropout)
        self.rate = dropout

    def forward(self, x: Tensor, valid: Tensor, positions: Tensor) -> Tensor:
        """Attend.

        Args:
            x: (B, T, H).
            valid: bool (B, T).
            positions: (2 T - 1, H), embeddings of the distances T - 1 down to -(T - 1).
        """
        batch, time, size = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, time, 3, self.heads, self.width).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        p = self.position(positions).view(-1, self.heads, self.width).transpose(0, 1)
        # Row t wants distances t - s: columns (T - 1 - t) + s of the table.
        scores = (q + self.position_bias[:, None]) @ p.transpose(-1, -2)
        steps = torch.arange(time, device=x.device)
        columns = (time - 1 - steps)[:, None] + steps
        bias = scores.gather(-1, columns.expand(batch, self.heads, time, time))
        bias = bias / math.sqrt(self.width)
        bias = bias.masked_fill(~valid[:, None, None], float("-inf"))
        attended = F.scaled_dot_product_attention(
            q + self.content_bias[:, None],
            k,
            v,
            attn_mask=bias,
            dropout_p=self.rate if self.training else 0.0,
        )
        joined = attended.transpose(1, 2).reshape(batch, time, size)
        return x + self.dropout(self.out(joined))


class Convolution(nn.Module):
    """Gated depth-wise convolution; each frame is normalised by itself."""

    def __init__(self, size: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.gate = nn.Linear(size, 2 * size)
        self.depthwise = nn.Conv1d(size, size, kernel, padding=kernel // 2, groups=size)
        self.inner_norm = nn.LayerNorm(size)
        self.out = nn.Linear(size, size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Takes and returns (B, T, H)."""
        gated = F.glu(self.gate(self.norm(x)), -1).masked_fill(~valid[..., None], 0.0)
        mixed = self.depthwise(gated.transpose(1, 2)).transpose(1, 2)
        return x + self.dropout(self.out(F.silu(self.inner_norm(mixed))))


class ConformerBlock(nn.Module):
    """Feed-forward, attention, convolution, feed-forward."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        size, inner, dropout = config.hidden_size, config.feed_forward_size, config.dropout
        self.before = FeedForward(size, inner, dropout)
        self.attention = RelativeAttention(size, config.num_heads, dropout)
        self.convolution = Convolution(size, config.kernel_size, dropout)
        self.after = FeedForward(size, inner, dropout)
        self.norm = nn.LayerNorm(size)

    def forward(self, x: Tensor, valid: Tensor, positions: Tensor) -> Tensor:
        """Takes and returns (B, T, H)."""
        x = self.attention(self.before(x), valid, positions)
        normed: Tensor = self.norm(self.after(self.convolution(x, valid)))
        return normed


class ConformerTrunk(Trunk):
    """A convolution that sets width and frame rate, then blocks.

    Args:
        config: of the head.
        input_size: F.
    """

    def __init__(self, config: ConformerConfig, input_size: int) -> None:
        super().__init__()
        self.stride = config.stride
        self.output_size = config.hidden_size
        kernel = 2 * config.stride + 1
        self.first = nn.Conv1d(input_size, config.hidden_size, kernel, config.stride, config.stride)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(ConformerBlock(config) for _ in range(config.num_blocks))

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        mask = frame_mask(lengths, features.shape[1])[..., None]
        x = self.first(features.masked_fill(~mask, 0.0).transpose(1, 2)).transpose(1, 2)
        lengths = strided(lengths, self.stride)
        x = self.dropout(x)
        valid = frame_mask(lengths, x.shape[1])
        positions = _relative_positions(x)
        for block in self.blocks:
            x = block(x, valid, positions)
        return x.transpose(1, 2), lengths


def _relative_positions(x: Tensor) -> Tensor:
    """Sinusoids of the distances T - 1 down to -(T - 1): (2 T - 1, H)."""
    time, size = x.shape[1], x.shape[2]
    distances = torch.arange(time - 1, -time, -1, device=x.device, dtype=x.dtype)
    rates = torch.exp(
        torch.arange(0, size, 2, device=x.device, dtype=x.dtype) * (-math.log(10000.0) / size)
    )
    angles = distances[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :size]
