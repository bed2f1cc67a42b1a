"""Batches of random pieces of recordings."""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from voicehub.data.keyed_random import numpy_generator
from voicehub.data.plan import Batch, permutation
from voicehub.errors import ConfigurationError, DataError


class RandomChunkPlan:
    """One piece of every recording an epoch, pieces of one length in a batch.

    The length is drawn for each batch; recordings that are shorter are taken whole. For every
    batch ``len(batch) * longest piece <= max_padded_seconds`` and ``len(batch) <= max_batch_size``.
    A dataset asks ``chunk_seconds_of(epoch, draw)`` how long the piece of a draw is.

    Args:
        durations: seconds of every sample of the dataset, in its order.
        chunk_seconds: shortest and longest piece.
        max_padded_seconds: the cap.
        max_batch_size: cap on the number of pieces.
        seed: data seed; an epoch is a function of (seed, epoch) and these arguments.

    Raises:
        ConfigurationError: a setting is out of range, or there are no samples.
        DataError: a duration is not a positive number.
    """

    kind = "random-chunk"

    def __init__(
        self,
        durations: Sequence[float],
        chunk_seconds: tuple[float, float],
        max_padded_seconds: float,
        max_batch_size: int,
        seed: int = 0,
    ) -> None:
        low, high = chunk_seconds
        if not (0 < low <= high <= max_padded_seconds and math.isfinite(max_padded_seconds)):
            raise ConfigurationError(
                f"chunk_seconds ({low:g}, {high:g}) and max_padded_seconds {max_padded_seconds:g}: "
                "expected 0 < shortest <= longest <= cap."
            )
        if max_batch_size < 1 or not len(durations):
            raise ConfigurationError(
                f"max_batch_size is {max_batch_size} and there are {len(durations)} durations; "
                "expected at least one of each."
            )
        self._lengths = np.asarray(durations, dtype=np.float64)
        if not (np.isfinite(self._lengths) & (self._lengths > 0)).all():
            raise DataError("a duration is not a positive number; run the manifest check.")
        self.chunk_seconds = (float(low), float(high))
        self.max_padded_seconds = float(max_padded_seconds)
        self.max_batch_size = max_batch_size
        self.seed = seed
        self.num_items = len(self._lengths)
        self._sizes: tuple[int, list[float], list[int]] | None = None
        self._cached: tuple[int, list[Batch]] | None = None

    def num_batches(self, epoch: int) -> int:
        """Return the number of batches, which may differ from epoch to epoch."""
        return len(self._plan(epoch)[0])

    def batches(self, epoch: int) -> list[Batch]:
        """Return the batches of ``epoch``; the last epoch asked for is remembered."""
        if self._cached is None or self._cached[0] != epoch:
            order = self.order(epoch)
            _, starts = self._plan(epoch)
            ends = [*starts[1:], self.num_items]
            self._cached = (epoch, [order[a:b] for a, b in zip(starts, ends, strict=True)])
        return self._cached[1]

    def order(self, epoch: int) -> list[int]:
        """Return the samples of an epoch in the order that batches are cut from."""
        return permutation(self.num_items, self.kind, self.seed, epoch).tolist()

    def chunk_seconds_of(self, epoch: int, draw: int) -> float:
        """Return the longest that the piece of one draw may be, in seconds.

        Args:
            epoch: zero-based.
            draw: position in the epoch's order, as ``SampleKey.draw`` has it.
        """
        lengths, starts = self._plan(epoch)
        return lengths[bisect_right(starts, draw) - 1]

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings and the digest of the durations that decide the order."""
        return {
            "kind": self.kind,
            "version": 1,
            "seed": self.seed,
            "num_items": self.num_items,
            "chunk_seconds": list(self.chunk_seconds),
            "max_padded_seconds": self.max_padded_seconds,
            "max_batch_size": self.max_batch_size,
            "durations_sha256": hashlib.sha256(self._lengths.astype("<f8").tobytes()).hexdigest(),
        }

    def batch_size(self, seconds: float) -> int:
        """Return how many pieces of so many seconds a batch holds."""
        # A hair more than the quotient: 60 / 0.1 must not give 599.
        return max(1, min(self.max_batch_size, int(self.max_padded_seconds / seconds + 1e-9)))

    def _plan(self, epoch: int) -> tuple[list[float], list[int]]:
        """Piece length and first draw of every batch."""
        if self._sizes is None or self._sizes[0] != epoch:
            low, high = self.chunk_seconds
            generator = numpy_generator("voicehub.chunk-seconds", self.seed, epoch)
            lengths: list[float] = []
            sizes: list[int] = []
            left = self.num_items
            while left > 0:
                seconds = low if low == high else float(generator.uniform(low, high))
                size = min(left, self.batch_size(seconds))
                lengths.append(seconds)
                sizes.append(size)
                left -= size
            starts = list(accumulate(sizes[:-1], initial=0))
            self._sizes = (epoch, lengths, starts)
        return self._sizes[1], self._sizes[2]
