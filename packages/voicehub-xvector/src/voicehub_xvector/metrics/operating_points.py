"""Misses and false alarms at every threshold that makes a difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class OperatingPoints:
    """Decisions "same speaker where score >= threshold", from accepting all to rejecting all.

    Attributes:
        thresholds: float64 (n,), rising, the last infinite.
        misses: int64 (n,), target trials rejected, never falling: 0 first, ``targets`` last.
        false_alarms: int64 (n,), non-target trials accepted, never rising: 0 last.
        targets, nontargets: numbers of trials.
    """

    thresholds: NDArray[np.float64]
    misses: NDArray[np.int64]
    false_alarms: NDArray[np.int64]
    targets: int
    nontargets: int

    @property
    def miss_rates(self) -> NDArray[np.float64]:
        """Share of target trials rejected at each threshold."""
        return self.misses / self.targets

    @property
    def false_alarm_rates(self) -> NDArray[np.float64]:
        """Share of non-target trials accepted at each threshold."""
        return self.false_alarms / self.nontargets


def operating_points(scores: ArrayLike, labels: ArrayLike) -> OperatingPoints:
    """Count at every different score; equal scores are accepted or rejected together.

    Args:
        scores: (trials,), higher for the same speaker.
        labels: (trials,), 1 or True where both sides are the same speaker.

    Raises:
        DataError: lengths differ, a score is NaN, a label is neither 0 nor 1, or one of the two
            kinds of trials is missing.
    """
    values, is_target = checked_trials(scores, labels)
    thresholds, group = np.unique(values, return_inverse=True)
    target_counts = np.bincount(group[is_target], minlength=len(thresholds))
    other_counts = np.bincount(group[~is_target], minlength=len(thresholds))
    misses = np.concatenate([[0], np.cumsum(target_counts)])
    false_alarms = np.concatenate([[0], np.cumsum(other_counts[::-1])])[::-1]
    return OperatingPoints(
        np.append(thresholds, np.inf),
        misses.astype(np.int64),
        false_alarms.astype(np.int64),
        int(misses[-1]),
        int(false_alarms[0]),
    )


def checked_trials(
    scores: ArrayLike, labels: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores as float64 and labels as booleans, or a :class:`DataError` that says what is wrong."""
    values = np.asarray(scores, dtype=np.float64)
    marks: NDArray[Any] = np.asarray(labels)
    if values.ndim != 1 or marks.shape != values.shape:
        raise DataError(
            f"Scores {values.shape} and labels {marks.shape} must be two lists of equal length."
        )
    if np.isnan(values).any():
        first = int(np.isnan(values).argmax())
        raise DataError(
            f"{int(np.isnan(values).sum())} of {len(values)} scores are NaN, the first at position "
            f"{first}."
        )
    strange = (marks != 0) & (marks != 1)
    if strange.any():
        raise DataError(
            f"A label must be 1 (same speaker) or 0, got {marks[strange][0]} at position "
            f"{int(strange.argmax())}."
        )
    is_target = marks.astype(bool)
    require_both(int(is_target.sum()), int((~is_target).sum()))
    return values, is_target


def require_both(targets: int, nontargets: int) -> None:
    """Raise a :class:`DataError` where one of the two kinds of trials is missing."""
    if not (targets and nontargets):
        raise DataError(
            f"Verification needs trials of the same speaker and of different speakers; got "
            f"{targets} and {nontargets}."
        )
