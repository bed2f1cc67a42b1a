"""The definition, as loops in float64."""

from __future__ import annotations

import torch
from torch import Tensor


def linear_cross_entropy_reference(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    position_weights: Tensor | None = None,
    ignored: int = -100,
) -> Tensor:
    """Weighted sum of the cross-entropy of each head, float64 (heads,), position by position.

    Arguments are those of :func:`voicehub.losses.linear_cross_entropy.linear_cross_entropy`.
    """
    sums = [torch.zeros((), dtype=torch.float64) for _ in weight]
    for head, matrix in enumerate(weight.double()):
        for row, label in enumerate(labels[:, head].tolist()):
            if label == ignored:
                continue
            logits = matrix @ hidden[row].double()
            loss = logits.exp().sum().log() - logits[label]
            factor = 1.0 if position_weights is None else position_weights[row, head].double()
            sums[head] = sums[head] + factor * loss
    return torch.stack(sums)
