"""Two-covariance PLDA: x = mean + y + e, y ~ N(0, between) of a speaker, e ~ N(0, within).

Brummer and de Villiers 2010; EM as in Sizov, Lee and Kinnunen 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voicehub.errors import DataError
from voicehub_xvector.metrics.pairs import unit_rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Matrix = NDArray[np.float64]

_FLOOR = 1e-8
"""Of the within covariance's spectrum, as a share of its mean: directions without any variation
within speakers would decide alone."""


@dataclass(frozen=True, eq=False)
class Plda:
    """The model's parameters.

    Attributes:
        mean: (D,).
        between, within: (D, D), covariances of speakers and of their recordings.
    """

    mean: Matrix
    between: Matrix
    within: Matrix

    @classmethod
    def fit(cls, embeddings: ArrayLike, speakers: Sequence[str], *, iterations: int = 20) -> Plda:
        """Maximise the likelihood by EM, from the covariances of the groups.

        Args:
            embeddings: (N, D).
            speakers: N names; every speaker counts, those with one recording too.
            iterations: of EM.

        Raises:
            DataError: numbers differ, or there are fewer than two speakers or no speaker with two
                recordings.
        """
        rows = np.asarray(embeddings, dtype=np.float64)
        names, groups, counts = np.unique(
            np.asarray(speakers, dtype=str), return_inverse=True, return_counts=True
        )
        if len(groups) != len(rows):
            raise DataError(f"{len(rows)} embeddings, but {len(groups)} speakers.")
        if len(names) < 2 or counts.max() < 2:
            raise DataError(
                f"PLDA needs two speakers and one with two recordings; got {len(names)} speakers "
                f"and at most {int(counts.max(initial=0))} recordings of one."
            )
        mean = rows.mean(axis=0)
        sums = np.zeros((len(names), rows.shape[1]))
        np.add.at(sums, groups, rows - mean)
        means = sums / counts[:, None]
        scatter = (rows - mean - means[groups]).T @ (rows - mean - means[groups])
        within = _floored(scatter / len(rows))
        between = np.cov(means.T, bias=True).reshape(within.shape)
        for _ in range(iterations):
            between, within = _em_step(means, counts, scatter, between, within)
        return cls(mean, between, within)


def _em_step(
    means: Matrix, counts: NDArray[np.int64], scatter: Matrix, between: Matrix, within: Matrix
) -> tuple[Matrix, Matrix]:
    """One round of EM on the means of the speakers and the scatter around them."""
    new_between, new_within = np.zeros_like(between), scatter.copy()
    for count in np.unique(counts):  # speakers with equally many recordings share a posterior
        of_count = means[counts == count]
        gain = np.linalg.solve(between + within / count, between).T
        guess = of_count @ gain.T
        spread = between - gain @ between
        rest = of_count - guess
        new_between += guess.T @ guess + len(of_count) * spread
        new_within += count * (rest.T @ rest + len(of_count) * spread)
    return new_between / len(means), _floored(new_within / counts.sum())


def _floored(covariance: Matrix) -> Matrix:
    symmetric = 0.5 * (covariance + covariance.T)
    values, vectors = np.linalg.eigh(symmetric)
    floor = _FLOOR * max(float(values.mean()), np.finfo(np.float64).tiny)
    if values[0] >= floor:
        return np.asarray(symmetric)
    floored: Matrix = (vectors * np.maximum(values, floor)) @ vectors.T
    return floored


class PldaBackend:
    """Log-likelihood ratio of "one speaker" to "two speakers".

    Args:
        model: fitted on embeddings prepared in the same way.
        centre: where given, it is taken off the embeddings, which are then scaled to length one
            (Garcia-Romero and Espy-Wilson 2011).
    """

    name = "plda"

    def __init__(self, model: Plda, *, centre: ArrayLike | None = None) -> None:
        self.model = model
        self._centre = None if centre is None else np.asarray(centre, dtype=np.float64)
        values, vectors = np.linalg.eigh(model.within)
        whiten = vectors / np.sqrt(values)
        spread, rotation = np.linalg.eigh(whiten.T @ model.between @ whiten)
        spread = np.maximum(spread, 0.0)
        self._transform = whiten @ rotation
        total = 1.0 + spread
        determinant = total**2 - spread**2
        self._cross = spread / determinant
        self._square = 0.5 * (1.0 / total - total / determinant)
        self._constant = float(np.sum(np.log(total) - 0.5 * np.log(determinant)))

    @classmethod
    def fit(
        cls,
        embeddings: ArrayLike,
        speakers: Sequence[str],
        *,
        length_norm: bool = True,
        iterations: int = 20,
    ) -> PldaBackend:
        """Fit a model on embeddings that are centred and, where wished, scaled to length one."""
        rows = np.asarray(embeddings, dtype=np.float64)
        if not length_norm:
            return cls(Plda.fit(rows, speakers, iterations=iterations))
        centre = rows.mean(axis=0)
        model = Plda.fit(unit_rows(rows - centre), speakers, iterations=iterations)
        return cls(model, centre=centre)

    def prepare(self, embeddings: ArrayLike) -> Matrix:
        """Coordinates in which both covariances are diagonal, the last column their own part."""
        rows = np.asarray(embeddings, dtype=np.float64)
        if self._centre is not None:
            rows = unit_rows(rows - self._centre)
        rows = (rows - self.model.mean) @ self._transform
        return np.concatenate([rows, (rows**2 @ self._square)[:, None]], axis=1)

    def pairs(self, left: Matrix, right: Matrix) -> Matrix:
        cross: Matrix = np.einsum("nd,d,nd->n", left[:, :-1], self._cross, right[:, :-1])
        return self._constant + left[:, -1] + right[:, -1] + cross

    def matrix(self, left: Matrix, right: Matrix) -> Matrix:
        cross: Matrix = (left[:, :-1] * self._cross) @ right[:, :-1].T
        return self._constant + left[:, -1:] + right[:, -1] + cross
