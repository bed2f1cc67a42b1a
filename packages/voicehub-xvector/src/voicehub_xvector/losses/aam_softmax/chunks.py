"""Cosines between a batch and one chunk of the classes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from voicehub.losses.blocks import padded

NORM_FLOOR = 1e-12
"""Vectors no longer than this count as zero: their cosines are 0, and so are their gradients."""


class Chunk(NamedTuple):
    """Cosines of a batch with the classes ``first`` .. ``first + size - 1``.

    Attributes:
        first, size: of the classes.
        rows: float (padded size * K, padded D), their prototypes as they are.
        inverse_norms: of the rows, 0 for zero rows.
        cosines: (B, more than size), those with the nearest sub-centre. The columns from ``size``
            on are dummies: what is scattered for classes of other chunks lands there.
        nearest: int64 (B, size), the sub-centre; None where there is one a class.
        sub_centres: K.
    """

    first: int
    size: int
    rows: Tensor
    inverse_norms: Tensor
    cosines: Tensor
    nearest: Tensor | None
    sub_centres: int

    def column(self, classes: Tensor) -> Tensor:
        """Columns of the classes (any shape, int64), a dummy's for classes of other chunks."""
        local = classes - self.first
        return torch.where((local >= 0) & (local < self.size), local, self.size)

    def spread(self, values: Tensor) -> Tensor:
        """Values of the columns of ``cosines`` as values of ``rows``: the nearest's, else 0."""
        if self.nearest is None:
            values[:, self.size :] = 0.0
            return values[:, : len(self.rows)]
        spread = values.new_zeros(len(values), len(self.rows))
        used = spread[:, : self.size * self.sub_centres]
        by_class = used.view(len(values), self.size, self.sub_centres)
        by_class.scatter_(2, self.nearest.unsqueeze(2), values[:, : self.size].unsqueeze(2))
        return spread


def accumulation_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 where all are, else float32."""
    return torch.float64 if all(t.dtype is torch.float64 for t in tensors) else torch.float32


def inverse_norms(vectors: Tensor) -> Tensor:
    """1 / |v| of each row; 0 for rows that count as zero."""
    norms = torch.linalg.vector_norm(vectors, dim=-1)
    return torch.where(norms > NORM_FLOOR, norms.clamp_min(NORM_FLOOR).reciprocal(), norms * 0)


def chunks(units: Tensor, weight: Tensor, sub_centres: int, class_chunk: int) -> Iterator[Chunk]:
    """All chunks in the order of the classes.

    Args:
        units: (B, D) vectors of length 1 or 0, both sizes padded.
        weight: (C * K, D), sub-centre k of class c in row c * K + k; not padded.
        sub_centres: K.
        class_chunk: prototypes in a chunk, at most (at least the K of one class).
    """
    classes = len(weight) // sub_centres
    step = max(1, class_chunk // sub_centres)
    for first in range(0, classes, step):
        size = min(step, classes - first)
        rows = weight[first * sub_centres : (first + size) * sub_centres].to(units.dtype)
        yield _chunk(units, padded(rows, 0, 1), first, size, sub_centres)


def _chunk(units: Tensor, rows: Tensor, first: int, size: int, sub_centres: int) -> Chunk:
    inverse = inverse_norms(rows)
    count = len(rows)
    every = units.new_empty(len(units), count + 1)
    torch.mm(units, rows.t(), out=every[:, :count])
    every[:, :count].mul_(inverse)
    if sub_centres == 1:
        every[:, count] = 0.0
        return Chunk(first, size, rows, inverse, every, None, 1)
    by_class = every[:, : size * sub_centres].view(len(units), size, sub_centres)
    cosines = units.new_zeros(len(units), size + 1)
    values, nearest = by_class.max(2)
    cosines[:, :size] = values
    return Chunk(first, size, rows, inverse, cosines, nearest, sub_centres)
