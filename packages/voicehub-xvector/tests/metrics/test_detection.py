"""Error rates and costs against sweeps over every threshold, written independently."""

from __future__ import annotations

import math
from itertools import pairwise, product
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError, DataError
from voicehub_xvector.metrics import (
    PRIORS,
    actual_dcf,
    equal_error_rate,
    min_dcf,
    operating_points,
    verify_scores,
)
from voicehub_xvector.speechbrain_parts import speechbrain_part

TRIALS = st.lists(st.tuples(st.integers(-6, 6), st.booleans()), min_size=2, max_size=40).filter(
    lambda trials: len({label for _, label in trials}) == 2
)


def split(trials):
    return [score / 4 for score, _ in trials], [label for _, label in trials]


def swept(scores, labels):
    """(false alarm, miss) at a threshold below, between and above all scores, by counting."""
    targets = [s for s, label in zip(scores, labels, strict=True) if label]
    others = [s for s, label in zip(scores, labels, strict=True) if not label]
    levels = sorted(set(scores))
    between = [(a + b) / 2 for a, b in pairwise(levels)]
    for threshold in [levels[0] - 1, *between, levels[-1] + 1]:
        alarm = sum(s > threshold for s in others) / len(others)
        yield alarm, sum(s <= threshold for s in targets) / len(targets)


def hull_rate(points):
    """Lowest crossing of the diagonal by any segment between two operating points."""
    best = 1.0
    for (fa, ma), (fb, mb) in product(points, points):
        before, after = fa - ma, mb - fb
        if before >= 0 and after >= 0:
            share = before / (before + after) if before + after else 0.0
            best = min(best, ma + share * (mb - ma))
    return best


@settings(max_examples=150, deadline=None)
@given(TRIALS)
def test_equal_a_sweep_over_all_thresholds(trials):
    scores, labels = split(trials)
    points = operating_points(scores, labels)
    curve = list(swept(scores, labels))
    assert equal_error_rate(points) == pytest.approx(hull_rate(curve), abs=1e-9)
    for prior, miss_cost, alarm_cost in [*((p, 1.0, 1.0) for p in PRIORS), (0.3, 10.0, 2.0)]:
        floor = min(miss_cost * prior, alarm_cost * (1 - prior))
        costs = [miss_cost * prior * m + alarm_cost * (1 - prior) * f for f, m in curve]
        cost, threshold = min_dcf(points, prior, c_miss=miss_cost, c_false_alarm=alarm_cost)
        assert cost == pytest.approx(min(costs) / floor, abs=1e-9)
        decided = [s >= threshold for s in scores]
        wrong = [d != label for d, label in zip(decided, labels, strict=True)]
        miss = sum(w for w, label in zip(wrong, labels, strict=True) if label) / sum(labels)
        alarm = sum(w for w, label in zip(wrong, labels, strict=True) if not label)
        alarm /= len(labels) - sum(labels)
        total = miss_cost * prior * miss + alarm_cost * (1 - prior) * alarm
        assert total / floor == pytest.approx(cost, abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(TRIALS)
def test_the_crossing_lies_between_the_neighbours_of_the_sweep(trials):
    points = operating_points(*split(trials))
    curve = list(swept(*split(trials)))
    rate = equal_error_rate(points, "crossing")
    above = [(f, m) for f, m in curve if f >= m][-1]
    below = next((f, m) for f, m in curve if m >= f)
    assert min(above[1], below[0]) - 1e-12 <= rate <= max(above[0], below[1]) + 1e-12
    assert equal_error_rate(points) <= rate + 1e-12


def test_agree_with_speechbrain_within_its_resolution():
    theirs = speechbrain_part("utils.metric_stats")
    generator = np.random.default_rng(0)
    positive, negative = generator.normal(1.5, 1, 150), generator.normal(0, 1, 250)
    scores = np.concatenate([positive, negative])
    points = operating_points(scores, np.arange(400) < 150)
    tensors = torch.tensor(positive), torch.tensor(negative)
    rate, _ = theirs.EER(*tensors)
    assert equal_error_rate(points, "crossing") == pytest.approx(rate, abs=0.5 / 150 + 0.5 / 250)
    assert rate - 3 / 150 < equal_error_rate(points) <= rate + 1 / 150
    for prior in PRIORS:
        cost, _ = theirs.minDCF(*tensors, p_target=prior)  # not normalised, in float32
        assert min_dcf(points, prior)[0] == pytest.approx(cost / prior, rel=1e-5)


def test_perfect_inverted_and_constant_scores():
    labels = [1, 1, 0, 0, 0]
    perfect = operating_points([2, 3, -1, 0, 1], labels)
    inverted = operating_points([-1, 0, 1, 2, 3], labels)
    constant = operating_points([0.5] * 5, labels)
    assert equal_error_rate(perfect) == 0 == equal_error_rate(perfect, "crossing")
    assert equal_error_rate(inverted) == 0.5 and equal_error_rate(inverted, "crossing") == 1
    assert equal_error_rate(constant) == 0.5 == equal_error_rate(constant, "crossing")
    for prior in PRIORS:
        assert min_dcf(perfect, prior)[0] == 0
        assert min_dcf(inverted, prior)[0] == 1 == min_dcf(constant, prior)[0]


def test_gaussian_scores_have_the_rate_of_theory():
    generator = np.random.default_rng(7)
    distance = 3.0
    scores = generator.normal(0, 1, 20_000)
    labels = np.arange(20_000) < 10_000
    scores[labels] += distance
    found = verify_scores(scores, labels)
    assert found.eer == pytest.approx(NormalDist().cdf(-distance / 2), abs=0.01)
    assert found.points.targets == found.points.nontargets == 10_000


def test_actual_cost_is_that_of_the_decision_by_bayes():
    scores, labels = [3.0, 0.5, -2.0, 4.0, -1.0], [1, 1, 1, 0, 0]
    # threshold log(0.95 / 0.05) = 2.944: one of three targets and one of two others accepted
    expected = (0.05 * 2 / 3 + 0.95 * 1 / 2) / 0.05
    assert actual_dcf(scores, labels, 0.05) == pytest.approx(expected, abs=1e-12)
    points = operating_points(scores, labels)
    assert actual_dcf(scores, labels, 0.05) >= min_dcf(points, 0.05)[0]


def test_named_metrics():
    found = verify_scores([1.0, 0.0], [1, 0]).metrics()
    assert found == {
        "eer": 0.0,
        "min_dcf_p05": 0.0,
        "min_dcf_p01": 0.0,
        "min_dcf_p005": 0.0,
        "min_dcf_p001": 0.0,
    }


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([1.0, math.nan], [1, 0], "1 of 2 scores are NaN, the first at position 1"),
        ([1.0, 2.0], [1, 2], "got 2 at position 1"),
        ([1.0, 2.0], [1, 1], "got 2 and 0"),
        ([1.0], [1, 0], "equal length"),
    ],
)
def test_trials_that_allow_no_figure_are_refused(scores, labels, message):
    with pytest.raises(DataError, match=message):
        operating_points(scores, labels)


def test_settings_that_make_no_sense_are_refused():
    points = operating_points([1.0, 0.0], [1, 0])
    with pytest.raises(ConfigurationError, match="0 < p_target < 1"):
        min_dcf(points, 1.0)
    with pytest.raises(ConfigurationError, match="'hull' or 'crossing'"):
        equal_error_rate(points, "mean")
