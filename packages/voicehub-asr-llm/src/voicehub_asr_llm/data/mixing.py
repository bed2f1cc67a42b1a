"""The order of a mix of sources: requested shares in every stretch of an epoch, nothing forgotten.

An epoch takes a fixed number of draws of every source. Draws of a source run through its rows in a
random order and begin a new order when all were taken, on from one epoch to the next: a source
that is capped gives other rows every epoch, one that is repeated gives all before any again.
Sources are interleaved evenly, so that any few thousand draws have the shares of the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from voicehub.data.keyed_random import derive_seed, numpy_generator
from voicehub.data.plan import Batch, BatchPlan, DurationBucketedPlan, permutation
from voicehub.errors import ConfigurationError
from voicehub_asr_llm.config.sources import SourcesConfig
from voicehub_asr_llm.data.sources import TrainingData
from voicehub_data.batching import DEFAULT_BATCH_SIZE, plan_from
from voicehub_data.config import BatchConfig

#: Draws that duration buckets are formed among: so many full batches, few enough to have the mix.
_WINDOW_BATCHES, _SMALLEST_WINDOW, _LARGEST_WINDOW = 16, 512, 4096


class MixPlan:
    """Batches over several sources, each with its own number of draws an epoch.

    Args:
        members: positions in the dataset of the rows of every source.
        draws: how many samples an epoch takes of each.
        durations: seconds of every sample of the dataset, in its order.
        batches: by number, or by padded seconds; buckets then lie within windows of draws.
        seed: data seed; an epoch is a function of (seed, epoch) and these arguments.
        ids: names of the samples, for messages.

    Raises:
        ConfigurationError: there is no source, or one has no rows or no draws.
        DataError: a sample alone is over the cap of padded seconds.
    """

    kind = "mix"

    def __init__(
        self,
        members: Sequence[range],
        draws: Sequence[int],
        durations: Sequence[float],
        batches: BatchConfig,
        *,
        seed: int,
        ids: Sequence[str] | None = None,
    ) -> None:
        if not members or len(members) != len(draws):
            raise ConfigurationError(
                f"{len(members)} sources and {len(draws)} numbers of draws; expected one each."
            )
        for position, (rows, count) in enumerate(zip(members, draws, strict=True)):
            if not len(rows) or count < 1:
                raise ConfigurationError(
                    f"source {position} has {len(rows)} rows and {count} draws; expected some."
                )
        self.members = [np.asarray(rows, dtype=np.int64) for rows in members]
        self.draws = list(draws)
        self.seed = seed
        self.num_items = len(durations)
        most = _WINDOW_BATCHES * batches.max_batch_size
        self.window = min(_LARGEST_WINDOW, max(_SMALLEST_WINDOW, most))
        self._config = batches
        self._durations = np.asarray(durations, dtype=np.float64)
        self._ids = ids
        self._cached: tuple[int, list[Batch]] | None = None
        if batches.max_padded_seconds is not None:
            # Every sample may be drawn in some epoch: one over the cap is found now.
            DurationBucketedPlan(durations, batches.max_padded_seconds, ids=ids)

    @property
    def draws_per_epoch(self) -> int:
        """Samples of an epoch, over all sources."""
        return sum(self.draws)

    def num_batches(self, epoch: int) -> int:
        """Return the number of micro-batches, which may differ from epoch to epoch."""
        return len(self.batches(epoch))

    def batches(self, epoch: int) -> list[Batch]:
        """Return the batches of ``epoch``; the last epoch asked for is remembered."""
        if self._cached is None or self._cached[0] != epoch:
            self._cached = (epoch, self._build(epoch))
        return self._cached[1]

    def order(self, epoch: int) -> list[int]:
        """Return the samples of an epoch in the order in which sources are interleaved."""
        samples, places = [], []
        for source, count in enumerate(self.draws):
            samples.append(self._samples(source, epoch))
            # One draw in each of `count` equal stretches of the epoch, at a random place.
            jitter: Any = 0.5
            if self._config.shuffle:
                jitter = numpy_generator("voicehub.mix-places", self.seed, epoch, source).random(
                    count
                )
            places.append((np.arange(count) + jitter) / count)
        ranked = np.argsort(np.concatenate(places), kind="stable")
        order: list[int] = np.concatenate(samples)[ranked].tolist()
        return order

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings and the digest of the durations that decide the order."""
        return {
            "kind": self.kind,
            "version": 1,
            "seed": self.seed,
            "num_items": self.num_items,
            "rows": [len(rows) for rows in self.members],
            "draws": self.draws,
            "window": self.window,
            "batches": self._config.model_dump(),
            "durations_sha256": hashlib.sha256(self._durations.astype("<f8").tobytes()).hexdigest(),
        }

    def _samples(self, source: int, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The draws of one source in one epoch: a stretch of its endless sequence of orders."""
        rows, count = self.members[source], self.draws[source]
        first = epoch * count
        laps = range(first // len(rows), (first + count - 1) // len(rows) + 1)
        orders = [
            permutation(len(rows), "mix", self.seed, source, lap)
            if self._config.shuffle
            else np.arange(len(rows))
            for lap in laps
        ]
        start = first - laps[0] * len(rows)
        return rows[np.concatenate(orders)[start : start + count]]

    def _build(self, epoch: int) -> list[Batch]:
        order = self.order(epoch)
        if self._config.max_padded_seconds is None:
            size = self._config.batch_size or DEFAULT_BATCH_SIZE
            batches = [order[at : at + size] for at in range(0, len(order), size)]
            if self._config.drop_last and len(batches[-1]) < size:
                batches.pop()
            if not batches:
                raise ConfigurationError(
                    f"drop_last leaves no batch: an epoch has {len(order)} draws and batch_size is "
                    f"{size}."
                )
            return batches
        # Windows of nearly equal size: a small rest would make small batches.
        count = max(1, round(len(order) / self.window))
        bounds = [len(order) * i // count for i in range(count + 1)]
        return [
            batch
            for number, (a, b) in enumerate(pairwise(bounds))
            for batch in self._bucketed(order[a:b], epoch, number)
        ]

    def _bucketed(self, drawn: Sequence[int], epoch: int, window: int) -> list[Batch]:
        plan = plan_from(
            self._config,
            self._durations[list(drawn)].tolist(),
            seed=derive_seed("voicehub.mix-window", self.seed, epoch, window),
        )
        return [[drawn[position] for position in batch] for batch in plan.batches(0)]


def training_plan(
    data: TrainingData,
    batches: BatchConfig,
    durations: Sequence[float],
    *,
    seed: int,
) -> BatchPlan:
    """The plan of a run: a mix where there is something to mix, else that of one plain source.

    Args:
        data: what was read.
        batches: how samples form batches.
        durations: seconds of every row, ``SpeechDataset.planning_durations``.
        seed: data seed.
    """
    ids = [row.id for row in data.rows]
    draws = [source.draws for source in data.sources]
    if len(draws) == 1 and draws[0] == len(data.rows):
        return plan_from(batches, durations, seed=seed, ids=ids)
    return MixPlan(data.members, draws, durations, batches, seed=seed, ids=ids)


def refuse_expanded_epochs(config: SourcesConfig, num_train_epochs: float) -> None:
    """Refuse ``epoch_expansion`` beside several epochs: both say how often data is gone through.

    Raises:
        ConfigurationError: both are set.
    """
    expanded = [source.path for source in config.train if source.epoch_expansion > 1]
    if expanded and num_train_epochs > 1:
        raise ConfigurationError(
            f"train source {expanded[0]} sets epoch_expansion and training.num_train_epochs is "
            f"{num_train_epochs:g}: both say how often the data is gone through. Set "
            "num_train_epochs=1, or leave epoch_expansion out."
        )
