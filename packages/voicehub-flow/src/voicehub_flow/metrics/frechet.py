"""Frechet distance between two sets of embeddings, as of two Gaussians.

d^2 = ||m1 - m2||^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)), in float64 (Dowson and Landau 1982).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Gaussian:
    """Mean (D,) and covariance (D, D) of embeddings, float64, and of how many they are."""

    mean: Matrix
    covariance: Matrix
    count: int


def gaussian_of(embeddings: Any) -> Gaussian:
    """Fit to embeddings (N, D); the covariance is divided by N - 1.

    Raises:
        DataError: they are under two, or not finite.
    """
    points = np.asarray(embeddings, dtype=np.float64)
    if points.ndim != 2 or len(points) < 2:
        raise DataError(
            f"a Frechet distance needs at least two embeddings (N, D) a side, got {points.shape}."
        )
    if not np.isfinite(points).all():
        raise DataError("embeddings for a Frechet distance are not finite.")
    mean = points.mean(0)
    centred = points - mean
    return Gaussian(mean, centred.T @ centred / (len(points) - 1), len(points))


def frechet_distance(one: Gaussian, other: Gaussian) -> float:
    """d^2 of two Gaussians, at least 0.

    The trace of (C1 C2)^(1/2) is that of (S C2 S)^(1/2) with S = C1^(1/2), which is symmetric: its
    eigenvalues are real, also where there are fewer embeddings than dimensions.

    Raises:
        DataError: they have different dimensions.
    """
    if one.mean.shape != other.mean.shape:
        raise DataError(
            f"embeddings of {len(one.mean)} and of {len(other.mean)} dimensions cannot be compared."
        )
    values, vectors = np.linalg.eigh(one.covariance)
    root = (vectors * np.sqrt(values.clip(min=0.0))) @ vectors.T
    product = root @ other.covariance @ root
    shared = np.sqrt(np.linalg.eigvalsh((product + product.T) / 2).clip(min=0.0)).sum()
    apart = float(((one.mean - other.mean) ** 2).sum())
    spread = float(np.trace(one.covariance) + np.trace(other.covariance) - 2.0 * shared)
    return max(0.0, apart + spread)
