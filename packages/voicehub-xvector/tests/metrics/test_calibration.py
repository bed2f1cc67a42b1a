"""Calibration: the optimum, what it wins, and separable scores."""

from __future__ import annotations

import math

import numpy as np
import pytest

from voicehub.errors import ConfigurationError
from voicehub_xvector.metrics import (
    PRIORS,
    actual_dcf,
    equal_error_rate,
    fit_calibration,
    min_dcf,
    operating_points,
)


def gaussian(seed, count=4000, distance=3.0):
    """Scores whose log-likelihood ratio is ``distance * score - distance^2 / 2``."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) < count // 4
    return generator.normal(size=count) + distance * labels, labels


def test_recovers_the_log_likelihood_ratio():
    scores, labels = gaussian(0, count=40_000)
    for prior in (0.5, 0.1):
        found = fit_calibration(scores, labels, prior=prior)
        assert found.slope == pytest.approx(3.0, rel=0.06)
        assert found.offset == pytest.approx(-4.5, rel=0.08)


def test_the_loss_has_its_minimum_there():
    scores, labels = gaussian(1, count=300, distance=1.0)
    prior, found = 0.2, fit_calibration(scores, labels, prior=0.2)
    logit = math.log(prior / (1 - prior))

    def loss(slope, offset):
        ratios = slope * scores + offset + logit
        right = prior * np.logaddexp(0, -ratios[labels]).mean()
        return right + (1 - prior) * np.logaddexp(0, ratios[~labels]).mean()

    least = loss(found.slope, found.offset)
    for change in (-1e-2, 1e-2):
        assert loss(found.slope + change, found.offset) > least
        assert loss(found.slope, found.offset + change) > least


def test_shifted_scores_cost_less_when_calibrated_on_others():
    scores, labels = gaussian(2)
    shifted = 0.3 * scores + 5.0
    held_out, held_labels = gaussian(3)
    held_out = 0.3 * held_out + 5.0
    calibration = fit_calibration(shifted, labels, prior=0.05)
    for prior in PRIORS[:2]:
        least = min_dcf(operating_points(held_out, held_labels), prior)[0]
        raw = actual_dcf(held_out, held_labels, prior) - least
        calibrated = actual_dcf(calibration.apply(held_out), held_labels, prior) - least
        assert 0 <= calibrated < 0.05 < raw


def test_separable_and_constant_scores_have_finite_calibrations():
    labels = [1, 1, 0, 0]
    found = fit_calibration([2.0, 3.0, 0.0, 1.0], labels)
    assert math.isfinite(found.slope) and found.slope > 0
    assert equal_error_rate(operating_points(found.apply([2.0, 3.0, 0.0, 1.0]), labels)) == 0
    assert fit_calibration([1.0] * 4, labels).apply([1.0]).tolist() == [0.0]


def test_a_prior_outside_its_range_is_refused():
    with pytest.raises(ConfigurationError, match=r"prior must be in \(0, 1\), got 0"):
        fit_calibration([1.0, 0.0], [1, 0], prior=0)
