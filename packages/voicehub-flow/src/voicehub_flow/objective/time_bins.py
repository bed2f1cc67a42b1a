"""The loss by t: a network may be good near the data and know nothing near the noise."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: As published systems log it.
BINS = 25


class TimeBins:
    """Sums of squared errors and of what they were taken over, by equal bins of t in [0, 1].

    Args:
        bins: how many.

    Attributes:
        sums, counts: float64 (bins,).
    """

    def __init__(self, bins: int = BINS) -> None:
        self.bins = bins
        self.sums = torch.zeros(bins, dtype=torch.float64)
        self.counts = torch.zeros(bins, dtype=torch.float64)

    def add(self, time: Tensor, sums: Tensor, counts: Tensor) -> None:
        """Take items.

        Args:
            time: (items,), in [0, 1]; t = 1 belongs to the last bin.
            sums: (items,), squared errors of an item, added up.
            counts: (items,), numbers that were added up.
        """
        place = (time.detach().double().cpu() * self.bins).long().clamp(0, self.bins - 1)
        self.sums.index_add_(0, place, sums.detach().double().cpu())
        self.counts.index_add_(0, place, counts.detach().double().cpu())

    def means(self) -> dict[str, float]:
        """Mean error of every bin that holds something, by its lower edge: ``t0.04``."""
        return {
            f"t{number / self.bins:.2f}": float(self.sums[number] / self.counts[number])
            for number in range(self.bins)
            if self.counts[number] > 0
        }


def time_rows(time: Tensor, sums: Tensor, counts: Tensor) -> list[tuple[float, float, float]]:
    """Time, sum of squared errors and its count of every item (items,), as rows to gather."""
    columns = torch.stack([time.double(), sums.double(), counts.double()], 1).tolist()
    return [(when, total, count) for when, total, count in columns]


def loss_by_time(rows: Sequence[tuple[float, float, float]]) -> dict[str, float]:
    """Mean error by bins of t, of rows of :func:`time_rows`; empty where there is none.

    ``loss_t0.04`` is that from 0.04 to the next bin.
    """
    if not rows:
        return {}
    bins = TimeBins()
    bins.add(*torch.tensor(list(rows), dtype=torch.float64).T)
    return {f"loss_{name}": value for name, value in bins.means().items()}
