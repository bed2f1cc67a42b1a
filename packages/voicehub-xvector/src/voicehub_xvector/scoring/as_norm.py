"""Adaptive symmetric score normalisation (Matejka et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voicehub.errors import ConfigurationError, DataError
from voicehub_xvector.scoring.backends import Backend

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class AsNorm:
    """Means and deviations of each embedding's scores against its nearest of a cohort.

    Attributes:
        means, deviations: float64 (N,).
    """

    means: NDArray[np.float64]
    deviations: NDArray[np.float64]

    def apply(
        self, scores: NDArray[np.float64], left: NDArray[np.int64], right: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Half the sum of the score in units of either side.

        Args:
            scores: (trials,).
            left, right: int64 (trials,), rows of the embeddings that the statistics are of.
        """
        normalised: NDArray[np.float64] = 0.5 * (
            (scores - self.means[left]) / self.deviations[left]
            + (scores - self.means[right]) / self.deviations[right]
        )
        return normalised


def cohort_statistics(
    backend: Backend,
    prepared: NDArray[np.float64],
    cohort: NDArray[np.float64],
    *,
    top: int,
    block: int = 512,
) -> AsNorm:
    """Statistics over the ``top`` highest cohort scores of each embedding.

    Args:
        backend: gives the scores.
        prepared: (N, .) embeddings of the trials, prepared by the backend.
        cohort: (M, .) likewise, of speakers that the trials do not hold; best one embedding a
            speaker.
        top: highest scores that count, from 2 to M. The deviation is that of those values
            (divided by their number).
        block: embeddings compared with the cohort at once.

    Raises:
        ConfigurationError: ``top`` is out of range.
        DataError: all top scores of an embedding are equal.
    """
    if not 2 <= top <= len(cohort):
        raise ConfigurationError(
            f"AS-norm takes the highest 2 to {len(cohort)} scores of a cohort of {len(cohort)}; "
            f"top is {top}."
        )
    means, deviations = np.empty(len(prepared)), np.empty(len(prepared))
    for start in range(0, len(prepared), block):
        rows = slice(start, start + block)
        scores = backend.matrix(prepared[rows], cohort)
        nearest = np.partition(scores, len(cohort) - top, axis=1)[:, len(cohort) - top :]
        means[rows], deviations[rows] = nearest.mean(axis=1), nearest.std(axis=1)
    if not (deviations > 0).all():
        raise DataError(
            f"The {top} highest cohort scores of embedding {int((deviations <= 0).argmax())} are "
            "all equal: the cohort repeats one recording. Use different ones."
        )
    return AsNorm(means, deviations)
