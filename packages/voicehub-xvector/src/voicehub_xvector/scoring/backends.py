"""How two embeddings become a score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from voicehub_xvector.metrics.pairs import unit_rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Backend(Protocol):
    """Embeddings are prepared once; prepared rows are then compared in pairs or all with all."""

    name: str

    def prepare(self, embeddings: ArrayLike) -> NDArray[np.float64]:
        """(N, D) to what the other methods take, (N, any)."""

    def pairs(self, left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores of row n with row n: (N,)."""

    def matrix(self, left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores of all rows with all: (N, M)."""


class Cosine:
    """Cosine of the angle, optionally after a mean was taken off.

    Args:
        mean: (D,) of a training set; None: 0.
    """

    name = "cosine"

    def __init__(self, mean: ArrayLike | None = None) -> None:
        self._mean = 0.0 if mean is None else np.asarray(mean, dtype=np.float64)

    def prepare(self, embeddings: ArrayLike) -> NDArray[np.float64]:
        return unit_rows(np.asarray(embeddings, dtype=np.float64) - self._mean)

    def pairs(self, left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = np.einsum("nd,nd->n", left, right)
        return scores

    def matrix(self, left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = left @ right.T
        return scores
