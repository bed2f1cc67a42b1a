"""Residual vector quantisation by k-means (Lloyd 1982), one codebook after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from voicehub.data.keyed_random import torch_generator
from voicehub.errors import DataError

#: Rows compared with a codebook at a time.
_ROWS = 8192


def nearest(vectors: Tensor, codebook: Tensor) -> Tensor:
    """Index int64 (n,) of the nearest row of ``codebook`` (size, d) for ``vectors`` (n, d)."""
    # The square of the vector itself is the same for all rows of the codebook.
    half = codebook.square().sum(1) / 2
    found = [(half - part @ codebook.T).argmin(1) for part in vectors.split(_ROWS)]
    return torch.cat(found) if found else vectors.new_zeros(0, dtype=torch.long)


def fit_codebook(vectors: Tensor, size: int, iterations: int, seed: object) -> Tensor:
    """k-means of ``vectors`` (n, d); returns (size, d).

    Starts from vectors chosen at random. A centre without vectors moves to the one that is
    worst represented.

    Raises:
        DataError: there are fewer vectors than centres.
    """
    count = len(vectors)
    if count < size:
        raise DataError(
            f"{count:,} frames are too few for a codebook of {size}; give more audio, or lower "
            "codebook_size."
        )
    chosen = torch.randperm(count, generator=torch_generator("k-means", seed))[:size]
    centres = vectors[chosen].clone()
    for _ in range(iterations):
        index = nearest(vectors, centres)
        sums = torch.zeros_like(centres).index_add_(0, index, vectors)
        counts = torch.bincount(index, minlength=size)
        filled = counts > 0
        centres[filled] = sums[filled] / counts[filled, None]
        empty = (~filled).nonzero().flatten()
        if len(empty):
            error = (vectors - centres[index]).square().sum(1)
            centres[empty] = vectors[error.topk(len(empty)).indices]
    return centres


def fit_residual(
    vectors: Tensor, codebooks: int, size: int, *, iterations: int = 25, seed: int = 0
) -> Tensor:
    """Codebooks (codebooks, size, d), each of what the ones before have left over."""
    rest, made = vectors.clone(), []
    for book in range(codebooks):
        centres = fit_codebook(rest, size, iterations, (seed, book))
        rest = rest - centres[nearest(rest, centres)]
        made.append(centres)
    return torch.stack(made)


def quantize(vectors: Tensor, codebooks: Tensor) -> Tensor:
    """Codes int64 (codebooks, n) of vectors (n, d), the nearest in each codebook in turn."""
    rest, codes = vectors, []
    for centres in codebooks:
        index = nearest(rest, centres)
        rest = rest - centres[index]
        codes.append(index)
    return torch.stack(codes)


def reconstruct(codes: Tensor, codebooks: Tensor) -> Tensor:
    """The vectors (n, d) that codes (codebooks, n) stand for."""
    parts = [centres[index] for centres, index in zip(codebooks, codes, strict=True)]
    return torch.stack(parts).sum(0)
