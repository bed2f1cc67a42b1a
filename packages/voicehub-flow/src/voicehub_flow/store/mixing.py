"""Batches over several sets, each drawn so many times an epoch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from voicehub.data.plan import permutation
from voicehub.errors import ConfigurationError


class MixturePlan:
    """Every clip of a set comes ``rate`` times an epoch, in an order drawn over all sets.

    A rate of 2.5 gives every clip twice and half of them once more, another half each epoch. Of
    the draws of an epoch a set hence has the share ``rate * clips / sum(rate * clips)``, to a clip.
    The order is a function of (seed, epoch) and of the sizes and rates alone.

    Args:
        sizes: clips of every set; the dataset holds them one after the other.
        rates: draws a clip and epoch, of every set; over 0.
        batch_size: clips of a micro-batch of one process.
        seed: data seed.

    Raises:
        ConfigurationError: a size or rate is out of range, or an epoch would be empty.
    """

    def __init__(
        self, sizes: Sequence[int], rates: Sequence[float], batch_size: int, seed: int = 0
    ) -> None:
        if len(sizes) != len(rates) or not sizes:
            raise ConfigurationError(f"{len(sizes)} sets and {len(rates)} rates; expected as many.")
        for size, rate in zip(sizes, rates, strict=True):
            if size < 1 or not (math.isfinite(rate) and rate > 0):
                raise ConfigurationError(
                    f"a set of {size} clips at the rate {rate}: both must be over 0."
                )
        if batch_size < 1:
            raise ConfigurationError(f"batch_size is {batch_size}; expected at least 1.")
        self.sizes, self.rates = tuple(sizes), tuple(float(rate) for rate in rates)
        self.batch_size, self.seed = batch_size, seed
        self._cached: tuple[int, list[list[int]]] | None = None
        if not self.draws:
            raise ConfigurationError("the rates draw not a single clip an epoch; raise them.")

    @property
    def counts(self) -> tuple[int, ...]:
        """Draws of each set in an epoch."""
        return tuple(
            max(1, round(rate * size)) for size, rate in zip(self.sizes, self.rates, strict=True)
        )

    @property
    def draws(self) -> int:
        """Draws of an epoch."""
        return sum(self.counts)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of each set in the draws."""
        return tuple(count / self.draws for count in self.counts)

    def num_batches(self, epoch: int) -> int:
        """Micro-batches of an epoch, equal for every epoch."""
        return -(-self.draws // self.batch_size)

    def batches(self, epoch: int) -> list[list[int]]:
        """The global micro-batches of an epoch; the last epoch asked for is remembered."""
        if self._cached is None or self._cached[0] != epoch:
            drawn = self._drawn(epoch)
            order = drawn[permutation(len(drawn), "mixture", self.seed, epoch)].tolist()
            size = self.batch_size
            made = [order[start : start + size] for start in range(0, len(order), size)]
            self._cached = (epoch, made)
        return self._cached[1]

    def fingerprint(self) -> dict[str, Any]:
        """Settings that decide the order."""
        settings = json.dumps([self.sizes, self.rates]).encode()
        return {
            "kind": "mixture",
            "version": 1,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "num_items": sum(self.sizes),
            "sets_sha256": hashlib.sha256(settings).hexdigest(),
        }

    def _drawn(self, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """What an epoch draws, set by set."""
        parts, first = [], 0
        for number, (size, count) in enumerate(zip(self.sizes, self.counts, strict=True)):
            whole, rest = divmod(count, size)
            parts.append(np.tile(np.arange(size), whole))
            # Which clips come once more differs from epoch to epoch.
            parts.append(permutation(size, "mixture-rest", self.seed, epoch, number)[:rest])
            parts[-2:] = [first + part for part in parts[-2:]]
            first += size
        return np.concatenate(parts).astype(np.int64)
