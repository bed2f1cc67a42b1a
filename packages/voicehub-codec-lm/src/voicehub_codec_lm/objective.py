"""From what a batch asks to its loss."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from voicehub.losses.linear_cross_entropy import (
    IGNORED,
    LinearCrossEntropy,
    linear_cross_entropy,
)
from voicehub_codec_lm.networks.base import Asked, Heads

#: Rows that are multiplied at once where only the best code is wanted.
_ROWS = 1024


def cost(heads: Heads, *, fused: bool) -> LinearCrossEntropy:
    """Weighted cross-entropy of a group of heads, with or without their logits."""
    if not fused:
        return materialised(heads)
    return linear_cross_entropy(
        heads.hidden,
        heads.weight,
        heads.labels,
        position_weights=heads.position_weights,
        head_weights=heads.head_weights,
    )


def materialised(heads: Heads) -> LinearCrossEntropy:
    """The same by plain operators over all logits, for comparison."""
    sums, counts = [], []
    for head, matrix in enumerate(heads.weight):
        labels = heads.labels[:, head]
        logits = functional.linear(heads.hidden, matrix)
        losses = functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
        valid = (labels != IGNORED).to(losses.dtype)
        given = heads.position_weights
        weights = valid if given is None else valid * given[:, head].to(losses.dtype)
        sums.append((losses * weights).sum())
        counts.append(weights.sum(dtype=torch.float64))
    stacked = torch.stack(sums)
    total = (stacked * heads.head_weights.to(stacked.dtype)).sum()
    return LinearCrossEntropy(total, stacked.detach().double(), torch.stack(counts))


def best_codes(heads: Heads) -> Tensor:
    """The most likely code of every row and head: int64 (rows, heads)."""
    columns = []
    for matrix in heads.weight:
        parts = [(rows @ matrix.T).argmax(-1) for rows in torch.split(heads.hidden, _ROWS)]
        columns.append(torch.cat(parts))
    return torch.stack(columns, 1)


def accuracy(asked: Asked) -> Iterator[tuple[str, int, int]]:
    """Name, right codes and asked codes of every head."""
    for heads in asked.heads:
        best = best_codes(heads)
        for column, name in enumerate(heads.names):
            labels = heads.labels[:, column]
            valid = labels != IGNORED
            yield name, int((valid & (best[:, column] == labels)).sum()), int(valid.sum())
