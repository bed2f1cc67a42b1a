"""Which samples form which batch: a pure function of lengths, seed and epoch.

A plan lists the *global* micro-batches of an epoch in order. ``deal`` gives rank r of n every n-th
of them, starting at r. One process that accumulates n micro-batches and n processes that
accumulate one therefore form the same global batch at every step.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np

from voicehub.data.batch_cost import SECONDS_A_SAMPLE, batch_cost
from voicehub.data.keyed_random import derive_seed
from voicehub.errors import ConfigurationError, DataError

Batch = list[int]

#: Batches of like duration side by side, at most.
_LARGEST_GROUP = 16

#: Groups of like duration that batches are drawn in, where their number is not given: padding
#: falls with their number, variety with the batches that one of them fills.
_FEWEST_BUCKETS, _MOST_BUCKETS, _BATCHES_A_BUCKET = 16, 100, 8

#: Steps of duration in which density is counted.
_DENSITY_BINS = 1000


@runtime_checkable
class BatchPlan(Protocol):
    """What a loader and a Trainer need to know about the order of the data."""

    seed: int

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        """Return the global micro-batches of ``epoch`` as lists of dataset indices."""
        ...

    def num_batches(self, epoch: int) -> int:
        """Return ``len(self.batches(epoch))``, as cheaply as possible."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """Return JSON that differs whenever the order of the data may differ."""
        ...


class FixedSizePlan:
    """Batches of a fixed number of samples; the last one may be smaller.

    Args:
        num_items: number of samples in the dataset.
        batch_size: samples in a micro-batch of one process.
        seed: data seed; the order of an epoch is a function of (seed, epoch, num_items).
        shuffle: draw a new order every epoch, or keep the order of the dataset.
        drop_last: leave out the last batch when it is smaller (those samples differ from epoch
            to epoch under ``shuffle``).

    Raises:
        ConfigurationError: a size is not positive, or ``drop_last`` leaves no batch.
    """

    def __init__(
        self,
        num_items: int,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        _require_positive("num_items", num_items)
        _require_positive("batch_size", batch_size)
        if drop_last and num_items < batch_size:
            raise ConfigurationError(
                f"drop_last leaves no batch: the dataset holds {num_items} samples and "
                f"batch_size is {batch_size}. Lower batch_size or turn drop_last off."
            )
        self.num_items = num_items
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last

    def num_batches(self, epoch: int) -> int:
        """Return the number of micro-batches, equal for every epoch."""
        whole, rest = divmod(self.num_items, self.batch_size)
        return whole if self.drop_last or rest == 0 else whole + 1

    def batches(self, epoch: int) -> list[Batch]:
        """Return the micro-batches of ``epoch``."""
        if self.shuffle:
            order = permutation(self.num_items, "fixed-size", self.seed, epoch)
        else:
            order = np.arange(self.num_items)
        size, whole = self.batch_size, self.num_items // self.batch_size
        with without_collections():
            batches: list[Batch] = order[: whole * size].reshape(whole, size).tolist()
        if whole < self.num_batches(epoch):
            batches.append(order[whole * size :].tolist())
        return batches

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings that decide the order."""
        return {
            "kind": "fixed-size",
            "version": 1,
            "seed": self.seed,
            "num_items": self.num_items,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }


class DurationBucketedPlan:
    """Batches of similar durations under a hard cap on padded seconds.

    For every batch ``len(batch) * max(duration) <= max_padded_seconds`` and
    ``len(batch) <= max_batch_size``. Samples are sorted by duration and cut into ``num_buckets``
    groups of equal count, or into groups that pad least; within a group the order is drawn anew
    every epoch, batches are filled greedily from the shortest group to the longest (a batch may
    straddle two neighbouring groups, so that groups leave no small remainders), and the order of
    batches is drawn last. More buckets mean less padding and less variety.

    Args:
        durations: seconds of every sample of the dataset, in its order.
        max_padded_seconds: the cap.
        max_batch_size: cap on the number of samples; ``None`` for none.
        seed: data seed.
        num_buckets: number of groups. ``None`` takes one for every 8 batches, between 16 and 100,
            and where that is over 16 it chooses their limits for the least padding: a large data
            set then pads about 1 %, and a small one keeps its variety.
        shuffle: ``False`` keeps batches in ascending order of duration, equal every epoch.
        ids: names of the samples for messages; positions are named without it.
        together: micro-batches that make one update, of all processes. They come in groups of
            nearly equal cost (``batch_cost``), so that no process waits long for another; the order
            of groups is drawn. A group is as large as a divisor of ``together`` up to 16, lest an
            update of many micro-batches sees one length alone.

    Raises:
        DataError: a duration is negative or not finite, or a single sample exceeds the cap.
        ConfigurationError: a setting is out of range or there are no samples.
    """

    def __init__(
        self,
        durations: Sequence[float],
        max_padded_seconds: float,
        max_batch_size: int | None = None,
        seed: int = 0,
        num_buckets: int | None = None,
        shuffle: bool = True,
        ids: Sequence[str] | None = None,
        together: int = 1,
    ) -> None:
        lengths = np.array([float(d) for d in durations], dtype=np.float64)
        _require_positive("the number of durations", len(lengths))
        if num_buckets is not None:
            _require_positive("num_buckets", num_buckets)
        if max_batch_size is not None:
            _require_positive("max_batch_size", max_batch_size)
        if not (math.isfinite(max_padded_seconds) and max_padded_seconds > 0):
            raise ConfigurationError(
                f"max_padded_seconds is {max_padded_seconds!r}; expected a positive number."
            )
        if ids is not None and len(ids) != len(lengths):
            raise ConfigurationError(
                f"{len(ids)} ids were given for {len(lengths)} durations; expected one each."
            )
        _check_durations(lengths, max_padded_seconds, ids)
        self.num_items = len(lengths)
        self.max_padded_seconds = float(max_padded_seconds)
        self.max_batch_size = max_batch_size
        self.seed = seed
        self.num_buckets = self._buckets(lengths) if num_buckets is None else num_buckets
        self._by_density = num_buckets is None and self.num_buckets > _FEWEST_BUCKETS
        self.shuffle = shuffle
        self._alike = _group_size(together)
        self._lengths = lengths
        self._cached: tuple[int, list[Batch]] | None = None

    def for_updates_of(self, micro_batches: int) -> DurationBucketedPlan:
        """Return this plan for updates of so many micro-batches, of all processes."""
        _require_positive("micro_batches", micro_batches)
        plan = copy.copy(self)
        plan._alike, plan._cached = _group_size(micro_batches), None
        return plan

    def num_batches(self, epoch: int) -> int:
        """Return the number of micro-batches, which may differ from epoch to epoch."""
        return len(self.batches(epoch))

    def batches(self, epoch: int) -> list[Batch]:
        """Return the micro-batches of ``epoch``; the last epoch asked for is remembered."""
        epoch = epoch if self.shuffle else 0
        if self._cached is None or self._cached[0] != epoch:
            self._cached = (epoch, self._build(epoch))
        return self._cached[1]

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings and the digest of the durations that decide the order."""
        grouped: dict[str, Any] = {}
        if self._alike > 1 and self.shuffle:
            grouped = {"alike": self._alike, "seconds_a_sample": SECONDS_A_SAMPLE}
        limits = {"limits": "density"} if self._by_density and self.shuffle else {}
        return {
            **grouped,
            **limits,
            "kind": "duration-bucketed",
            "version": 1,
            "seed": self.seed,
            "num_items": self.num_items,
            "max_padded_seconds": self.max_padded_seconds,
            "max_batch_size": self.max_batch_size,
            "num_buckets": self.num_buckets,
            "shuffle": self.shuffle,
            "durations_sha256": hashlib.sha256(self._lengths.astype("<f8").tobytes()).hexdigest(),
        }

    def _buckets(self, lengths: np.ndarray[Any, np.dtype[np.float64]]) -> int:
        """Return the number of groups for so much data."""
        batches = float(lengths.sum()) / self.max_padded_seconds
        if self.max_batch_size is not None:
            batches = max(batches, len(lengths) / self.max_batch_size)
        return min(_MOST_BUCKETS, max(_FEWEST_BUCKETS, int(batches / _BATCHES_A_BUCKET)))

    def _limits(self, ascending: np.ndarray[Any, np.dtype[np.float64]]) -> list[int]:
        """Return where groups begin among sorted durations, the first left out.

        By density the limits lie in equal steps of the summed square root of the density (Dalenius
        and Hodges 1959). A group of width w and density f pads about f w^2 / 2, and over all
        groups that is least where their widths go with 1 / sqrt(f).
        """
        count, low, width = len(ascending), ascending[0], ascending[-1] - ascending[0]
        if not self._by_density or width == 0:
            groups = min(self.num_buckets, count)
            large = count % groups  # so many hold one more
            return [n * (count // groups) + min(n, large) for n in range(1, groups)]
        bins = ((ascending - low) * (_DENSITY_BINS / width)).astype(np.int64)
        filled = np.bincount(np.minimum(bins, _DENSITY_BINS - 1), minlength=_DENSITY_BINS)
        summed = np.cumsum(np.sqrt(filled))
        steps = summed[-1] * np.arange(1, self.num_buckets) / self.num_buckets
        behind = np.cumsum(filled)[np.searchsorted(summed, steps)]
        limits: list[int] = behind.tolist()
        return limits

    def _build(self, epoch: int) -> list[Batch]:
        order = np.argsort(self._lengths, kind="stable")
        if self.shuffle:
            draws = _raw_draws(self.num_items, "buckets", self.seed, epoch)
            groups = np.split(order, self._limits(self._lengths[order]))
            order = np.concatenate([g[np.argsort(draws[g], kind="stable")] for g in groups])
        with without_collections():
            filled = self._fill(order.tolist())
        if not self.shuffle:
            return filled
        turns = permutation(len(filled), "bucket-order", self.seed, epoch).tolist()
        return [filled[i] for i in self._in_groups(turns, filled, epoch)]

    def _in_groups(self, turns: list[int], filled: list[Batch], epoch: int) -> list[int]:
        """Put batches of like cost side by side; what is over when groups are full stays last."""
        size = self._alike
        whole = len(turns) // size
        if size == 1 or whole == 0:
            return turns
        lengths = self._lengths.tolist()
        costs = [batch_cost([lengths[i] for i in batch]) for batch in filled]
        place = {number: at for at, number in enumerate(turns)}
        drawn, rest = turns[: whole * size], turns[whole * size :]
        alike = sorted(drawn, key=lambda number: (costs[number], place[number]))
        # Within a group in the order drawn, so that no process always has the longest.
        groups = [
            sorted(alike[at : at + size], key=place.__getitem__)
            for at in range(0, len(alike), size)
        ]
        order = permutation(whole, "group-order", self.seed, epoch).tolist()
        return [number for at in order for number in groups[at]] + rest

    def _fill(self, order: list[int]) -> list[Batch]:
        lengths = self._lengths.tolist()
        cap = self.max_padded_seconds
        most = self.max_batch_size if self.max_batch_size is not None else self.num_items
        batches: list[Batch] = []
        batch: Batch = []
        longest = 0.0
        for item in order:
            longer = max(longest, lengths[item])
            if batch and (len(batch) == most or (len(batch) + 1) * longer > cap):
                batches.append(batch)
                batch, longer = [], lengths[item]
            batch.append(item)
            longest = longer
        batches.append(batch)
        return batches


class StreamPlan:
    """Batches of consecutive items of an iterable dataset, which cannot be indexed.

    Its length is unknown, so the run needs ``max_steps``; a resume replays the stream.
    """

    def __init__(self, batch_size: int, seed: int = 0, drop_last: bool = False) -> None:
        _require_positive("batch_size", batch_size)
        self.batch_size = batch_size
        self.seed = seed
        self.drop_last = drop_last

    def num_batches(self, epoch: int) -> int:
        """Raise: nobody knows the length of a stream beforehand."""
        raise ConfigurationError(
            "the number of batches of an iterable dataset is unknown; set max_steps."
        )

    def batches(self, epoch: int) -> list[Batch]:
        """Raise: a stream has no indices."""
        raise ConfigurationError(
            "an iterable dataset has no planned batches; it is read in its own order."
        )

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings that decide how the stream is cut."""
        return {
            "kind": "stream",
            "version": 1,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
        }


def deal(batches: Sequence[Sequence[int]], rank: int, world_size: int) -> list[Sequence[int]]:
    """Return the micro-batches of one rank: every ``world_size``-th, starting at ``rank``.

    Together the ranks hold every batch exactly once. When the number of batches is no multiple of
    ``world_size``, the first ranks hold one more; nothing is dropped or repeated, and filling the
    last step with empty work is the strategy's part.

    Raises:
        ConfigurationError: ``rank`` is outside ``[0, world_size)``.
    """
    check_rank(rank, world_size)
    return list(batches[rank::world_size])


@contextmanager
def without_collections() -> Iterator[None]:
    """Make very many lists without the garbage collector, which looks for cycles again and again.

    There are none in lists of numbers, and for a million samples the search took longer than all
    the rest.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def check_rank(rank: int, world_size: int) -> None:
    """Raise ``ConfigurationError`` unless ``0 <= rank < world_size``."""
    if not 0 <= rank < world_size:
        raise ConfigurationError(f"rank is {rank}; expected 0 <= rank < world_size={world_size}.")


def permutation(num_items: int, *key: object) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a random order of ``range(num_items)`` that is a function of the key alone.

    Raw draws of PCG64 are sorted, since NumPy guarantees that stream for all versions while the
    stream behind ``Generator.permutation`` may change with a release.
    """
    return np.argsort(_raw_draws(num_items, *key), kind="stable")


def _raw_draws(count: int, *key: object) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.random.PCG64(derive_seed("voicehub.plan", *key)).random_raw(count)


def _group_size(together: int) -> int:
    """Return the largest divisor up to ``_LARGEST_GROUP``: updates are made of whole groups."""
    _require_positive("together", together)
    return max(d for d in range(1, _LARGEST_GROUP + 1) if together % d == 0)


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise ConfigurationError(f"{name} is {value}; expected at least 1.")


def _check_durations(
    lengths: np.ndarray[Any, np.dtype[np.float64]], cap: float, ids: Sequence[str] | None
) -> None:
    invalid = np.flatnonzero(~(np.isfinite(lengths) & (lengths >= 0)))
    if len(invalid):
        raise DataError(
            f"{len(invalid)} of {len(lengths)} durations are negative or not finite: "
            f"{_name_rows(invalid, lengths, ids)}. Run the manifest check to correct them."
        )
    over = np.flatnonzero(lengths > cap)
    if len(over):
        raise DataError(
            f"{len(over)} of {len(lengths)} samples are longer than max_padded_seconds={cap:g}: "
            f"{_name_rows(over, lengths, ids)}. Raise max_padded_seconds or filter by duration."
        )


def _name_rows(
    rows: np.ndarray[Any, Any],
    lengths: np.ndarray[Any, np.dtype[np.float64]],
    ids: Sequence[str] | None,
    limit: int = 10,
) -> str:
    names = [
        f"{f'id {ids[row]!r}' if ids is not None else f'row {row}'} ({lengths[row]:g} s)"
        for row in rows[:limit].tolist()
    ]
    rest = len(rows) - limit
    return ", ".join(names) + (f" and {rest} more" if rest > 0 else "")
