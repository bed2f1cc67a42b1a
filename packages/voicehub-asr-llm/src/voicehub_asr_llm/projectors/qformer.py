"""The projector ``qformer``."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from voicehub_asr_llm.config import QFormerProjectorConfig
from voicehub_asr_llm.projectors.base import Projected, Projector, RMSNorm, projected_lengths


class _Attention(nn.Module):
    def __init__(self, size: int, source: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.out = nn.Linear(size, size), nn.Linear(size, size)
        self.key, self.value = nn.Linear(source, size), nn.Linear(source, size)

    def forward(self, x: Tensor, source: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(x), self.key(source), self.value(source))
        )
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        out: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return out


class _Layer(nn.Module):
    """Queries look at each other, at their frames, and think; pre-norm, residual."""

    def __init__(self, size: int, source: int, heads: int) -> None:
        super().__init__()
        self.own_norm, self.own = RMSNorm(size), _Attention(size, size, heads)
        self.cross_norm, self.cross = RMSNorm(size), _Attention(size, source, heads)
        self.norm = RMSNorm(size)
        self.first, self.second = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        own = self.own_norm(x)
        x = x + self.own(own, own)
        x = x + self.cross(self.cross_norm(x), source, mask)
        out: Tensor = x + self.second(functional.gelu(self.first(self.norm(x))))
        return out


class QFormerProjector(Projector):
    """Learned queries, ``window`` of them over each ``window * stride`` frames.

    A last window that is not full gives as many outputs as it has whole strides, so that the
    number of outputs follows the formula of the other projectors.

    Args:
        config: sizes.
        encoder_size, decoder_size: width of frames and of outputs.
    """

    def __init__(
        self, config: QFormerProjectorConfig, encoder_size: int, decoder_size: int
    ) -> None:
        super().__init__(config.stride)
        self.window, size = config.window, config.hidden_size
        self.norm = RMSNorm(encoder_size)
        self.queries = nn.Parameter(torch.randn(config.window, size))
        #: Where a frame is in its window.
        self.places = nn.Parameter(0.02 * torch.randn(config.window * config.stride, encoder_size))
        self.layers = nn.ModuleList(
            _Layer(size, encoder_size, config.num_heads) for _ in range(config.num_layers)
        )
        self.out_norm = RMSNorm(size)
        self.out = nn.Linear(size, decoder_size)

    def _project(self, states: Tensor, frames: Tensor) -> Projected:
        batch, longest, width = states.shape
        span = self.window * self.stride
        windows = max(1, -(-longest // span))
        states = functional.pad(states, (0, 0, 0, windows * span - longest))
        seen = torch.arange(windows * span, device=frames.device) < frames[:, None]
        # A window of padding alone must look at something; its outputs are nobody's.
        mask = seen.view(batch * windows, 1, 1, span)
        mask = mask | ~mask.any(-1, keepdim=True)
        source = self.norm(states).view(batch * windows, span, width) + self.places
        x = self.queries.expand(batch * windows, -1, -1)
        for layer in self.layers:
            x = layer(x, source, mask)
        outputs = self.out(self.out_norm(x)).view(batch, windows * self.window, -1)
        return Projected(outputs[:, : projected_lengths(longest, self.stride)])
