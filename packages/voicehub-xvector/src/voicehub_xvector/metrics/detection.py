"""Error rates and costs of a detector."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from voicehub.errors import ConfigurationError
from voicehub_xvector.metrics.operating_points import OperatingPoints, checked_trials

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

EerDefinition = Literal["hull", "crossing"]


def equal_error_rate(points: OperatingPoints, definition: EerDefinition = "hull") -> float:
    """Rate at which misses and false alarms are equally frequent, in [0, 1].

    ``hull``: where the convex hull of the operating points meets miss = false alarm (the ROCCH-EER
    of Brummer and de Villiers 2013). It is at most 0.5, since deciding by chance is on the hull.
    ``crossing``: where the straight line between the two operating points next to each other on
    both sides of miss = false alarm meets it, which is what threshold sweeps approximate; inverted
    scores give 1.
    """
    if definition == "crossing":
        return _crossing_rate(points)
    if definition != "hull":
        raise ConfigurationError(f"EER is defined by 'hull' or 'crossing', not {definition!r}.")
    return _meeting_rate(points, *hull_segment(points))


def _crossing_rate(points: OperatingPoints) -> float:
    gap = points.misses * points.nontargets - points.false_alarms * points.targets
    right = int((gap >= 0).argmax())  # it rises from accepting all to rejecting all
    return _meeting_rate(points, right - 1, right) if gap[right] else points.miss_rates[right]


def hull_segment(points: OperatingPoints) -> tuple[int, int]:
    """Ends of the hull's segment that crosses miss = false alarm: positions among the points.

    The first lies on the side of more false alarms. Found by cutting planes: of all points, take
    the one furthest below the line through both ends, until there is none. Counts are integers, so
    "below" is exact.
    """
    misses, alarms = points.misses, points.false_alarms
    first, last = 0, len(misses) - 1
    while True:
        for_miss = int(alarms[first] - alarms[last])
        for_alarm = int(misses[last] - misses[first])
        cost = for_miss * misses + for_alarm * alarms
        lowest = int(cost.argmin())
        if cost[lowest] >= cost[first]:
            return first, last
        if misses[lowest] * points.nontargets <= alarms[lowest] * points.targets:
            first = lowest
        else:
            last = lowest


def _meeting_rate(points: OperatingPoints, first: int, last: int) -> float:
    """Where the line between two points meets miss = false alarm."""
    miss, alarm = points.miss_rates, points.false_alarm_rates
    before, after = alarm[first] - miss[first], miss[last] - alarm[last]
    share = before / (before + after) if before + after > 0 else 0.0
    return float(miss[first] + share * (miss[last] - miss[first]))


def min_dcf(
    points: OperatingPoints, p_target: float, *, c_miss: float = 1.0, c_false_alarm: float = 1.0
) -> tuple[float, float]:
    """Lowest detection cost over all thresholds, and the threshold that has it.

    The cost is c_miss p P(miss) + c_false_alarm (1 - p) P(false alarm), divided by that of the
    better constant decision: 1 is no better than not listening.

    Args:
        points: of the detector.
        p_target: prior p of a target trial, in (0, 1).
        c_miss, c_false_alarm: costs of the errors, > 0.
    """
    weights = _weights(p_target, c_miss, c_false_alarm)
    costs = weights[0] * points.miss_rates + weights[1] * points.false_alarm_rates
    lowest = int(costs.argmin())
    return float(costs[lowest] / min(weights)), float(points.thresholds[lowest])


def actual_dcf(
    scores: ArrayLike,
    labels: ArrayLike,
    p_target: float,
    *,
    c_miss: float = 1.0,
    c_false_alarm: float = 1.0,
) -> float:
    """Normalised cost of deciding by Bayes where scores are taken as log-likelihood ratios.

    Accepted is what scores log(c_false_alarm (1 - p) / (c_miss p)) or more. Never below
    :func:`min_dcf`; the difference is what calibration can win.
    """
    weights = _weights(p_target, c_miss, c_false_alarm)
    values, is_target = checked_trials(scores, labels)
    accepted = values >= math.log(weights[1] / weights[0])
    miss = 1.0 - float(np.mean(accepted[is_target]))
    alarm = float(np.mean(accepted[~is_target]))
    return (weights[0] * miss + weights[1] * alarm) / min(weights)


def _weights(p_target: float, c_miss: float, c_false_alarm: float) -> tuple[float, float]:
    if not (0 < p_target < 1 and c_miss > 0 and c_false_alarm > 0):
        raise ConfigurationError(
            f"A detection cost needs 0 < p_target < 1 and costs > 0; got p_target {p_target}, "
            f"c_miss {c_miss}, c_false_alarm {c_false_alarm}."
        )
    return c_miss * p_target, c_false_alarm * (1.0 - p_target)
