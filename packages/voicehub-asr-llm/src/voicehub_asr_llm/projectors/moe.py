"""The projector ``moe``."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from voicehub_asr_llm.config import MoeProjectorConfig
from voicehub_asr_llm.projectors.base import Projected, Projector, RMSNorm, projected_lengths


class _Expert(nn.Module):
    def __init__(self, size: int, hidden: int, out: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(size, hidden), nn.Linear(hidden, out)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(functional.gelu(self.first(x)))
        return out


class MoeProjector(Projector):
    """A shared expert, and routed ones of which each position takes the best.

    All experts run on all positions, which costs little beside a decoder, so that every parameter
    has a gradient in every batch. The costs are taken over each utterance by itself, so that a
    global batch may be split in any way: the balance of Fedus et al. 2021, ``E sum_e f_e p_e``,
    and the router's z-loss of Zoph et al. 2022, the mean of ``logsumexp(scores)^2``.

    Args:
        config: sizes and weights.
        encoder_size, decoder_size: width of frames and of outputs.
    """

    def __init__(self, config: MoeProjectorConfig, encoder_size: int, decoder_size: int) -> None:
        super().__init__(config.stride)
        self.config = config
        size = config.stride * encoder_size
        self.norm = RMSNorm(size)
        self.router = nn.Linear(size, config.experts, bias=False)
        self.shared = _Expert(size, config.hidden_size, decoder_size)
        self.experts = nn.ModuleList(
            _Expert(size, config.hidden_size, decoder_size) for _ in range(config.experts)
        )

    def _project(self, states: Tensor, frames: Tensor) -> Projected:
        x = self.norm(self.stacked(states))
        scores = self.router(x)
        scores = scores.float() if scores.dtype != torch.float64 else scores
        shares = scores.softmax(-1)
        best, chosen = shares.topk(self.config.active, -1)
        best = best / best.sum(-1, keepdim=True)
        weights = torch.zeros_like(shares).scatter(-1, chosen, best)
        outputs = self.shared(x)
        for number, expert in enumerate(self.experts):
            outputs = outputs + weights[..., number, None].to(outputs.dtype) * expert(x)
        return Projected(outputs, self._costs(scores, shares, chosen, frames))

    def _costs(self, scores: Tensor, shares: Tensor, chosen: Tensor, frames: Tensor) -> Tensor:
        counts = projected_lengths(frames, self.stride)
        positions = torch.arange(scores.shape[1], device=frames.device)
        valid = (positions < counts[:, None]).to(shares.dtype)
        total = counts.clamp(min=1).to(shares.dtype)
        picked = functional.one_hot(chosen, self.config.experts).sum(2).to(shares.dtype)
        share_picked = (picked * valid[..., None]).sum(1) / (total * self.config.active)[:, None]
        share_meant = (shares * valid[..., None]).sum(1) / total[:, None]
        balance = self.config.experts * (share_picked * share_meant).sum(-1)
        z = (scores.logsumexp(-1).square() * valid).sum(1) / total
        return self.config.balance_weight * balance + self.config.z_weight * z
