"""Dynamic time warping: the cheapest way to walk through two sequences at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from voicehub.errors import DataError


class WarpingPath(NamedTuple):
    """The cheapest path.

    Attributes:
        pairs: int64 (steps, 2), from (0, 0) to (n - 1, m - 1).
        total: sum of the costs of its cells.
    """

    pairs: NDArray[np.int64]
    total: float


def dynamic_time_warping(cost: NDArray[np.floating]) -> WarpingPath:
    """Find the path of least total cost with steps (1, 1), (1, 0) and (0, 1), all of weight 1.

    Sakoe and Chiba 1978 without slope weights or a window. Of equally cheap steps the diagonal is
    taken, then (1, 0).

    Args:
        cost: (n, m), finite.

    Raises:
        DataError: the matrix is empty or holds values that are not finite.
    """
    cells = np.asarray(cost, dtype=np.float64)
    if cells.ndim != 2 or 0 in cells.shape or not np.isfinite(cells).all():
        raise DataError(
            f"dynamic_time_warping: expected finite costs (n, m), n and m at least 1, got "
            f"{cells.shape} with {int((~np.isfinite(cells)).sum())} values that are not finite."
        )
    return _traced_back(_cumulated(cells))


def _cumulated(cost: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n + 1, m + 1): least cost up to each cell, infinite in row and column 0.

    Cells of one antidiagonal depend on the two before it alone: each is one vector operation.
    """
    n, m = cost.shape
    best = np.full((n + 1, m + 1), np.inf)
    best[0, 0] = 0.0
    for diagonal in range(2, n + m + 1):
        i = np.arange(max(1, diagonal - m), min(n, diagonal - 1) + 1)
        j = diagonal - i
        before = np.minimum(best[i - 1, j - 1], np.minimum(best[i - 1, j], best[i, j - 1]))
        best[i, j] = cost[i - 1, j - 1] + before
    return best


def _traced_back(best: NDArray[np.float64]) -> WarpingPath:
    i, j = best.shape[0] - 1, best.shape[1] - 1
    total, pairs = float(best[i, j]), [(i - 1, j - 1)]
    while (i, j) != (1, 1):
        steps = ((i - 1, j - 1), (i - 1, j), (i, j - 1))
        i, j = min(steps, key=lambda cell: best[cell])
        pairs.append((i - 1, j - 1))
    return WarpingPath(np.array(pairs[::-1], dtype=np.int64), total)
