"""Scores to log-likelihood ratios by logistic regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voicehub.errors import ConfigurationError
from voicehub_xvector.metrics.operating_points import checked_trials

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_RIDGE = 1e-6
"""On the slope in standardised units: keeps it finite where the scores separate perfectly."""


@dataclass(frozen=True)
class Calibration:
    """``slope * score + offset`` is a natural log-likelihood ratio."""

    slope: float
    offset: float

    def apply(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Calibrated scores, in the order given."""
        return self.slope * np.asarray(scores, dtype=np.float64) + self.offset


def fit_calibration(scores: ArrayLike, labels: ArrayLike, *, prior: float = 0.5) -> Calibration:
    """Fit slope and offset on labelled trials, by Newton's method on a convex loss.

    The loss is the cross-entropy of the posterior at ``prior``, each of the two kinds of trials
    weighted as the prior says whatever their numbers (Brummer and du Preez 2006).

    Args:
        scores: (trials,), finite.
        labels: (trials,), 1 for the same speaker.
        prior: of a target trial, in (0, 1): the operating point where calibration matters most.

    Raises:
        DataError: as :func:`~voicehub_xvector.metrics.operating_points.operating_points`.
        ConfigurationError: the prior is outside (0, 1).
    """
    if not 0 < prior < 1:
        raise ConfigurationError(f"prior must be in (0, 1), got {prior}.")
    values, is_target = checked_trials(scores, labels)
    centre, spread = float(values.mean()), float(values.std())
    if spread == 0.0:  # a constant says nothing
        return Calibration(0.0, 0.0)
    design = np.stack([(values - centre) / spread, np.ones_like(values)], 1)
    signs = np.where(is_target, 1.0, -1.0)
    counts = is_target.sum(), (~is_target).sum()
    weights = np.where(is_target, prior / counts[0], (1.0 - prior) / counts[1])
    logit = math.log(prior / (1.0 - prior))
    slope, offset = _newton(design, signs, weights, logit)
    return Calibration(float(slope / spread), float(offset - slope * centre / spread))


def _newton(
    design: NDArray[np.float64],
    signs: NDArray[np.float64],
    weights: NDArray[np.float64],
    logit: float,
) -> NDArray[np.float64]:
    """Minimise sum w log(1 + exp(-sign (x b + logit))) + ridge; steps are halved until it falls."""
    ridge = np.array([_RIDGE, 0.0])

    def loss(b: NDArray[np.float64]) -> float:
        terms = np.logaddexp(0.0, -signs * (design @ b + logit))
        return float(weights @ terms + 0.5 * ridge @ b**2)

    b = np.zeros(2)
    for _ in range(100):
        margins = signs * (design @ b + logit)
        wrong = 0.5 * (1.0 - np.tanh(0.5 * margins))
        gradient = -design.T @ (weights * signs * wrong) + ridge * b
        curvature = (design * (weights * wrong * (1.0 - wrong))[:, None]).T @ design
        step = np.linalg.solve(curvature + np.diag(ridge + 1e-12), gradient)
        size, before = 1.0, loss(b)
        while loss(b - size * step) > before and size > 1e-9:
            size *= 0.5
        b = b - size * step
        if np.abs(size * step).max() < 1e-10:
            break
    return b
