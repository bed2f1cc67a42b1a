"""The log-mel encoder: strided convolution, depthwise-separable blocks, a little self-attention.

Every layer looks at valid frames alone: what enters a convolution is zero behind an utterance's
end, attention is masked there, and normalisation is over channels. An utterance's outputs
therefore do not depend on the padding behind it nor on its batch mates.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Log-mel frames for one output frame.
SUBSAMPLING = 2
_SUBSAMPLING_KERNEL = 5


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Sizes of the network; see ``voicehub_asr_ctc.config.LogMelModelConfig``."""

    n_mels: int
    num_tokens: int
    hidden_size: int
    num_blocks: int
    kernel_size: int
    attention_every: int
    num_heads: int
    dropout: float
    intermediate: bool

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


class NetworkOutput(NamedTuple):
    """Unnormalised scores.

    Attributes:
        logits: (batch, frames, tokens).
        intermediate_logits: the same, read half-way up the encoder; None unless training with an
            intermediate loss.
    """

    logits: Tensor
    intermediate_logits: Tensor | None = None


def output_frames(feature_frames: int) -> int:
    """Frames that the network gives for a number of log-mel frames: half, rounded up."""
    return (feature_frames + SUBSAMPLING - 1) // SUBSAMPLING


class ConvolutionBlock(nn.Module):
    """Gated linear unit, depthwise convolution over time, linear; pre-norm, residual.

    The convolution module of the Conformer (Gulati et al. 2020) with layer normalisation in the
    place of batch normalisation.
    """

    def __init__(self, width: int, kernel_size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.depthwise = nn.Conv1d(
            width, width, kernel_size, padding=kernel_size // 2, groups=width
        )
        self.inner_norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Return (batch, frames, width); ``valid`` is 1.0 or 0.0, (batch, frames, 1)."""
        h = functional.glu(self.expand(self.norm(x)), -1) * valid
        h = self.depthwise(h.transpose(1, 2)).transpose(1, 2)
        h = self.project(functional.silu(self.inner_norm(h)))
        out: Tensor = x + self.dropout(h)
        return out


class AttentionBlock(nn.Module):
    """Self-attention over valid frames and a feed-forward layer; pre-norm, residual."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.feed_in = nn.Linear(width, 2 * width)
        self.feed_out = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Return (batch, frames, width); ``valid`` is 1.0 or 0.0, (batch, frames, 1)."""
        batch, frames, width = x.shape
        heads = self.query_key_value(self.norm(x)).view(batch, frames, 3, self.num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mask = valid[:, None, None, :, 0] > 0
        h = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.dropout(self.out(h.transpose(1, 2).reshape(batch, frames, width)))
        h = self.feed_out(functional.silu(self.feed_in(self.feed_norm(x))))
        out: Tensor = x + self.dropout(h)
        return out


class LogMelNetwork(nn.Module):
    """From log-mel features to token scores, at half the feature rate.

    Args:
        config: sizes.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.subsample = nn.Conv1d(
            config.n_mels,
            width,
            _SUBSAMPLING_KERNEL,
            stride=SUBSAMPLING,
            padding=_SUBSAMPLING_KERNEL // 2,
        )
        self.input_norm = nn.LayerNorm(width)
        blocks: list[nn.Module] = []
        for number in range(1, config.num_blocks + 1):
            blocks.append(ConvolutionBlock(width, config.kernel_size, config.dropout))
            if config.attention_every and number % config.attention_every == 0:
                blocks.append(AttentionBlock(width, config.num_heads, config.dropout))
        self.blocks = nn.ModuleList(blocks)
        self.output_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, config.num_tokens)

    def forward(self, features: Tensor, feature_lengths: Tensor) -> NetworkOutput:
        """Return scores.

        Args:
            features: float (batch, frames, n_mels); what lies behind an utterance's end is
                ignored.
            feature_lengths: int (batch,), valid frames.
        """
        intermediate = None
        half_way = len(self.blocks) // 2 if self.config.intermediate and self.training else 0
        x, valid = self._subsampled(features, feature_lengths)
        for number, block in enumerate(self.blocks, start=1):
            x = block(x, valid)
            if number == half_way:
                intermediate = self.head(self.output_norm(x))
        return NetworkOutput(self.head(self.output_norm(x)), intermediate)

    def encode(self, features: Tensor, feature_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the output layer reads, for models built on this encoder.

        Arguments are those of ``forward``.

        Returns:
            States (batch, output frames, hidden size), and the valid frames of each, int (batch,).
        """
        x, valid = self._subsampled(features, feature_lengths)
        for block in self.blocks:
            x = block(x, valid)
        return self.output_norm(x), valid[..., 0].sum(1).long()

    def output_frames(self, feature_frames: int) -> int:
        """Frames that so many log-mel frames give."""
        return output_frames(feature_frames)

    def _subsampled(self, features: Tensor, feature_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """What enters the blocks, and 1.0 or 0.0 (batch, frames, 1) for what of it is valid."""
        frames = torch.arange(features.shape[1], device=features.device)
        features = features.masked_fill((frames >= feature_lengths[:, None])[..., None], 0.0)
        x = self.subsample(features.transpose(1, 2)).transpose(1, 2)
        lengths = torch.div(feature_lengths + SUBSAMPLING - 1, SUBSAMPLING, rounding_mode="floor")
        valid = (frames[: x.shape[1]] < lengths[:, None])[..., None].to(x.dtype)
        return functional.silu(self.input_norm(x)), valid
