"""From frames to one vector of an utterance; frames behind its length never count."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from voicehub_xvector.head_config import PoolingConfig
from voicehub_xvector.masking import frame_mask

#: Smallest variance under a square root or a logarithm.
_FLOOR = 1e-5


def build_pooling(config: PoolingConfig, channels: int) -> Pooling:
    """Return the pooling of ``channels`` channels that a configuration names."""
    builders: dict[str, Callable[[], Pooling]] = {
        "mean": lambda: Mean(channels),
        "mean+stddev": lambda: MeanStddev(channels),
        "mean+logvar": lambda: MeanLogvar(channels),
        "lde": lambda: LearnableDictionary(channels, config.components),
        "scaled-dot-product": lambda: ScaledDotProduct(channels, config.heads),
        "channel-attention": lambda: ChannelAttention(channels, config.attention_size),
    }
    return builders[config.kind]()


class Pooling(nn.Module):
    """Takes (B, C, T) and lengths (B,), returns (B, ``output_size``)."""

    output_size: int

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Pool the first ``lengths`` frames of each row."""
        raise NotImplementedError


def _moments(frames: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance over time under weights (B, 1 or C, T) that sum to one over time."""
    mean = (frames * weights).sum(-1)
    centred = (frames - mean[..., None]).square()
    return mean, (centred * weights).sum(-1)


def _uniform(frames: Tensor, lengths: Tensor) -> Tensor:
    mask = frame_mask(lengths, frames.shape[-1]).to(frames.dtype)
    return (mask / mask.sum(-1, keepdim=True).clamp(min=1.0))[:, None]


class Mean(Pooling):
    """Mean of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.output_size = channels

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        return (frames * _uniform(frames, lengths)).sum(-1)


class MeanStddev(Pooling):
    """Mean and standard deviation of each channel (Snyder et al. 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.output_size = 2 * channels

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        mean, variance = _moments(frames, _uniform(frames, lengths))
        return torch.cat([mean, variance.clamp(min=_FLOOR).sqrt()], -1)


class MeanLogvar(Pooling):
    """Mean and log variance of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.output_size = 2 * channels

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        mean, variance = _moments(frames, _uniform(frames, lengths))
        return torch.cat([mean, variance.clamp(min=_FLOOR).log()], -1)


class LearnableDictionary(Pooling):
    """Residuals to learnt centres, each frame shared out among them (Cai et al. 2018)."""

    def __init__(self, channels: int, components: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(components, channels) / math.sqrt(channels))
        self.sharpness = nn.Parameter(torch.ones(components))
        self.output_size = components * channels

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        features = frames.transpose(1, 2)
        # |x - c|^2 without the tensor of all differences.
        cross = features @ self.centres.T
        distance = features.square().sum(-1, keepdim=True) - 2 * cross
        distance = (distance + self.centres.square().sum(-1)) / features.shape[-1]
        shares = (-distance * self.sharpness.square()).softmax(-1)
        valid = frame_mask(lengths, frames.shape[-1])[..., None]
        shares = shares.masked_fill(~valid, 0.0)
        total = shares.sum(1).clamp(min=_FLOOR)[..., None]
        sums = shares.transpose(1, 2) @ features.masked_fill(~valid, 0.0)
        return (sums / total - self.centres).flatten(1)


class ScaledDotProduct(Pooling):
    """Heads that each attend to the frames with a learnt query (Vaswani et al. 2017)."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        if channels % heads:
            from voicehub.errors import ConfigurationError

            raise ConfigurationError(
                f"pooling.heads is {heads}; the {channels} channels it pools are no multiple of it."
            )
        self.heads = heads
        self.queries = nn.Parameter(torch.randn(heads, channels // heads) / math.sqrt(channels))
        self.keys = nn.Conv1d(channels, channels, 1)
        self.values = nn.Conv1d(channels, channels, 1)
        self.output_size = channels

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        batch, channels, time = frames.shape
        width = channels // self.heads
        keys = self.keys(frames).view(batch, self.heads, width, time)
        values = self.values(frames).view(batch, self.heads, width, time)
        scores = torch.einsum("hw,bhwt->bht", self.queries, keys) / math.sqrt(width)
        valid = frame_mask(lengths, time)[:, None]
        weights = scores.masked_fill(~valid, float("-inf")).softmax(-1)
        values = values.masked_fill(~valid[:, None], 0.0)
        return torch.einsum("bht,bhwt->bhw", weights, values).flatten(1)


class ChannelAttention(Pooling):
    """Mean and deviation, each channel weighing frames by itself with the global statistics in
    view (Desplanques et al. 2020)."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Conv1d(3 * channels, hidden, 1)
        self.scores = nn.Conv1d(hidden, channels, 1)
        self.output_size = 2 * channels

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        valid = frame_mask(lengths, frames.shape[-1])[:, None]
        frames = frames.masked_fill(~valid, 0.0)
        mean, variance = _moments(frames, _uniform(frames, lengths))
        context = torch.cat([mean, variance.clamp(min=_FLOOR).sqrt()], 1)
        seen = torch.cat([frames, context[..., None].expand(-1, -1, frames.shape[-1])], 1)
        scores = self.scores(torch.tanh(self.hidden(seen)))
        weights = scores.masked_fill(~valid, float("-inf")).softmax(-1)
        mean, variance = _moments(frames, weights)
        return torch.cat([mean, variance.clamp(min=_FLOOR).sqrt()], 1)
