"""All pairs of a set of embeddings as trials, without a matrix of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from voicehub.errors import DataError
from voicehub_xvector.metrics.operating_points import OperatingPoints, require_both

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def all_pairs_points(
    embeddings: ArrayLike, speakers: Sequence[str], *, block: int = 1024
) -> OperatingPoints:
    """Operating points of the cosines of all N (N - 1) / 2 pairs.

    Only scores of the same speaker are kept. Those of different speakers are counted between
    them, block by block: no error rate gets better anywhere else than at a target's score, so the
    convex hull, its EER and every minimal cost are those of all scores.

    Args:
        embeddings: (N, D), of any length; compared in float64.
        speakers: N names.
        block: rows compared at once.

    Raises:
        DataError: numbers differ, an embedding is zero or not finite, or every pair (or none) is
            of one speaker.
    """
    units = unit_rows(embeddings)
    if len(units) != len(speakers):
        raise DataError(f"{len(units)} embeddings, but {len(speakers)} speakers.")
    ids = np.unique(np.asarray(speakers, dtype=str), return_inverse=True)[1]
    order = np.argsort(ids, kind="stable")
    units, ids = units[order], ids[order]  # speakers in runs
    targets = np.sort(_target_scores(units, ids))
    pairs = len(units) * (len(units) - 1) // 2
    require_both(len(targets), pairs - len(targets))
    thresholds, firsts = np.unique(targets, return_index=True)
    counts = np.zeros(len(thresholds) + 1, dtype=np.int64)
    ends = np.searchsorted(ids, ids, side="right")  # of each row's speaker
    for start in range(0, len(units), block):
        rows = slice(start, min(start + block, len(units)))
        scores = units[rows] @ units[start:].T
        later = np.arange(start, len(units)) >= ends[rows, None]
        found = np.searchsorted(thresholds, scores[later], side="right")
        counts += np.bincount(found, minlength=len(counts))
    # counts[k]: scores that k of the thresholds do not lie above.
    accepted = counts[::-1].cumsum()[::-1]
    return OperatingPoints(
        np.concatenate([[-np.inf], thresholds, [np.inf]]),
        np.concatenate([[0], firsts, [len(targets)]]).astype(np.int64),
        np.concatenate([accepted, [0]]).astype(np.int64),
        len(targets),
        pairs - len(targets),
    )


def _target_scores(units: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    starts = np.searchsorted(ids, np.unique(ids))
    found = [np.empty(0)]
    for rows in np.split(units, starts[1:]):
        upper = np.triu_indices(len(rows), 1)
        found.append((rows @ rows.T)[upper])
    return np.concatenate(found)


def unit_rows(embeddings: ArrayLike) -> NDArray[np.float64]:
    """Rows of length 1 in float64.

    Raises:
        DataError: not a matrix, or a row is zero or not finite.
    """
    rows = np.asarray(embeddings, dtype=np.float64)
    if rows.ndim != 2:
        raise DataError(f"Embeddings must be (N, D), got {rows.shape}.")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    bad = np.flatnonzero(~(np.isfinite(norms[:, 0]) & (norms[:, 0] > 0)))
    if len(bad):
        raise DataError(
            f"{len(bad)} of {len(rows)} embeddings are zero or not finite, the first in row "
            f"{int(bad[0])}: they have no direction."
        )
    units: NDArray[np.float64] = rows / norms
    return units
