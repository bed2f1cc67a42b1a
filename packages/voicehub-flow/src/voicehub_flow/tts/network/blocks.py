"""Transformer blocks whose norms are shifted, scaled and gated by the time (adaLN-zero)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from voicehub_flow.tts.network.positions import rotate, time_sinusoids

_EPS = 1e-6
_TIME_CHANNELS = 256


class TimeEmbedding(nn.Module):
    """Times (batch,) to vectors (batch, dim)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.time_mlp = nn.Sequential(
            nn.Linear(_TIME_CHANNELS, dim), nn.SiLU(), nn.Linear(dim, dim)
        )

    def forward(self, time: Tensor) -> Tensor:
        """Embed times."""
        embedded: Tensor = self.time_mlp(time_sinusoids(time, _TIME_CHANNELS))
        return embedded


class ConvPositions(nn.Module):
    """Two grouped convolutions, by which frames know where they are; padding stays zero."""

    def __init__(self, dim: int, kernel: int, groups: int) -> None:
        super().__init__()

        def conv() -> nn.Conv1d:
            return nn.Conv1d(dim, dim, kernel, groups=groups, padding=kernel // 2)

        self.conv1d = nn.Sequential(conv(), nn.Mish(), conv(), nn.Mish())

    def forward(self, frames: Tensor, padding: Tensor) -> Tensor:
        """Convolve frames (batch, frames, dim); ``padding`` is bool (batch, frames, 1)."""
        values = frames.masked_fill(padding, 0.0).transpose(1, 2)
        hidden = padding.transpose(1, 2)
        for layer in self.conv1d:
            values = layer(values)
            if isinstance(layer, nn.Mish):
                values = values.masked_fill(hidden, 0.0)
        return values.transpose(1, 2)


class Attention(nn.Module):
    """Self-attention over the valid frames, with rotary positions in all or some heads."""

    def __init__(self, dim: int, heads: int, rotary_heads: int | None, dropout: float) -> None:
        super().__init__()
        self.heads, self.rotary_heads = heads, rotary_heads
        self.to_q = nn.Linear(dim, dim)
        self.to_k = nn.Linear(dim, dim)
        self.to_v = nn.Linear(dim, dim)
        self.to_out = nn.ModuleList([nn.Linear(dim, dim), nn.Dropout(dropout)])

    def forward(self, frames: Tensor, seen: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Attend; ``seen`` is bool (batch, 1, 1, frames)."""
        query, key, value = (
            layer(frames).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.to_q, self.to_k, self.to_v)
        )
        query, key = self._turned(query, turns), self._turned(key, turns)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        mixed = mixed.transpose(1, 2).flatten(2)
        for layer in self.to_out:
            mixed = layer(mixed)
        return mixed

    def _turned(self, values: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        count = self.rotary_heads
        if count is None:
            return rotate(values, turns)
        return torch.cat((rotate(values[:, :count], turns), values[:, count:]), dim=1)


class FeedForward(nn.Module):
    """Two linear layers with a GELU between."""

    def __init__(self, dim: int, inner: int, dropout: float) -> None:
        super().__init__()
        into = nn.Sequential(nn.Linear(dim, inner), nn.GELU(approximate="tanh"))
        self.ff = nn.Sequential(into, nn.Dropout(dropout), nn.Linear(inner, dim))

    def forward(self, frames: Tensor) -> Tensor:
        """Apply it to every frame."""
        result: Tensor = self.ff(frames)
        return result


class Modulation(nn.Module):
    """A vector for the whole utterance to so many shifts, scales and gates, zero at first."""

    def __init__(self, dim: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.linear = nn.Linear(dim, parts * dim)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, condition: Tensor) -> tuple[Tensor, ...]:
        """Return ``parts`` tensors (batch, 1, dim)."""
        made: Tensor = self.linear(functional.silu(condition))
        return tuple(made[:, None].chunk(self.parts, dim=-1))


class Block(nn.Module):
    """Attention and feed-forward, each behind a gate."""

    def __init__(
        self, dim: int, heads: int, inner: int, rotary_heads: int | None, dropout: float
    ) -> None:
        super().__init__()
        self.attn_norm = Modulation(dim, 6)
        self.attn = Attention(dim, heads, rotary_heads, dropout)
        self.ff = FeedForward(dim, inner, dropout)

    def forward(
        self, frames: Tensor, condition: Tensor, seen: Tensor, turns: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Apply the block to frames (batch, frames, dim), given (batch, dim)."""
        shift, scale, gate, ff_shift, ff_scale, ff_gate = self.attn_norm(condition)
        frames = frames + gate * self.attn(normed(frames, shift, scale), seen, turns)
        result: Tensor = frames + ff_gate * self.ff(normed(frames, ff_shift, ff_scale))
        return result


def normed(frames: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Layer norm without weights of its own, scaled and shifted."""
    return functional.layer_norm(frames, frames.shape[-1:], eps=_EPS) * (1 + scale) + shift
