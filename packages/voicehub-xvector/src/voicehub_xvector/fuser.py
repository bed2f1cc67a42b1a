"""Hidden states of an encoder to one sequence of features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from voicehub_xvector.head_config import FuserConfig
from voicehub_xvector.masking import frame_mask


class Fuser(nn.Module):
    """Joins hidden states ``start`` to ``stop``, then projects and normalises.

    Args:
        config: of the fuser.
        count: hidden states that are fused.
        hidden_size: their width.

    Attributes:
        output_size: width of the result.
    """

    def __init__(self, config: FuserConfig, count: int, hidden_size: int) -> None:
        super().__init__()
        self.kind = config.kind
        self.normalize = config.normalize
        self.output_size = config.size or hidden_size
        if config.kind == "weighted-avg":
            self.scores = nn.Parameter(torch.zeros(count))
        elif config.kind == "linear":
            self.weights = nn.Parameter(torch.full((count,), 1.0 / count))
        elif config.kind == "cat":
            self.join = nn.Linear(count * hidden_size, self.output_size)
        projects = config.size is not None and config.kind != "cat"
        self.project = nn.Linear(hidden_size, self.output_size) if projects else None

    def forward(
        self,
        states: Sequence[Tensor],
        lengths: Tensor,
        time_mask: Tensor | None = None,
        feature_mask: Tensor | None = None,
    ) -> Tensor:
        """Fuse.

        Args:
            states: hidden states (B, T, H), the lowest first.
            lengths: valid frames (B,).
            time_mask, feature_mask: bool (B, T) and (B, ``output_size``): what SpecAugment hides.

        Returns:
            (B, T, ``output_size``), zero behind ``lengths``.
        """
        fused = self._joined(states)
        if self.project is not None:
            fused = self.project(fused)
        valid = frame_mask(lengths, fused.shape[1])[..., None]
        fused = _normalised(fused, valid, lengths, self.normalize)
        if time_mask is not None:
            fused = fused.masked_fill(time_mask[..., None], 0.0)
        if feature_mask is not None:
            fused = fused.masked_fill(feature_mask[:, None], 0.0)
        return fused.masked_fill(~valid, 0.0)

    def _joined(self, states: Sequence[Tensor]) -> Tensor:
        if self.kind == "last":
            return states[-1]
        if self.kind == "cat":
            joined: Tensor = self.join(torch.cat(list(states), -1))
            return joined
        weights = self.scores.softmax(0) if self.kind == "weighted-avg" else self.weights
        total = states[0] * weights[0]
        for state, weight in zip(states[1:], weights[1:], strict=True):
            total = total + state * weight
        return total


def _normalised(fused: Tensor, valid: Tensor, lengths: Tensor, how: str) -> Tensor:
    if how == "none":
        return fused
    count = lengths.clamp(min=1)[:, None, None].to(fused.dtype)
    centred = fused - fused.masked_fill(~valid, 0.0).sum(1, keepdim=True) / count
    if how == "mean":
        return centred
    variance = centred.masked_fill(~valid, 0.0).square().sum(1, keepdim=True) / count
    return centred * (variance + 1e-5).rsqrt()
