"""The loss by t: a network may be good near the data and know nothing near the noise."""

from __future__ import annotations

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
