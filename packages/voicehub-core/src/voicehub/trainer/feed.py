"""The data side of a run: a dataset, its batch plan and its collator, read window by window."""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.plain import ModuleAdapter
from voicehub.data.access import BatchRequest
from voicehub.data.batching import BatchMaker
from voicehub.data.collate import default_data_collator
from voicehub.data.keyed_random import SampleKey
from voicehub.data.loader import BatchLoader
from voicehub.data.plan import BatchPlan, DurationBucketedPlan, FixedSizePlan, StreamPlan
from voicehub.errors import ConfigurationError, DataError
from voicehub.strategies.base import TrainingStrategy
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.fingerprint import describe_object
from voicehub.trainer.micro_batch import MicroBatch

logger = logging.getLogger(__name__)

Collator = Callable[[list[Any]], Any]
_NO_INFO: Mapping[str, Any] = {}


def choose_collator(explicit: Collator | None, dataset: Any, adapter: TrainingAdapter) -> Collator:
    """``data_collator``, else the dataset's own ``collate_fn``, else the adapter's, else ours."""
    if explicit is not None:
        return explicit
    own = getattr(dataset, "collate_fn", None)
    if callable(own):
        return own  # type: ignore[no-any-return]
    return adapter.data_collator() or default_data_collator


class ColumnFilter:
    """Drops batch keys that a plain module's ``forward`` does not take, and says so once."""

    def __init__(self, adapter: TrainingAdapter, *, keep: list[str], enabled: bool) -> None:
        self.accepted: frozenset[str] | None = None
        self._told = False
        if enabled and isinstance(adapter, ModuleAdapter):
            parameters = inspect.signature(adapter.module.forward).parameters.values()
            if all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters):
                self.accepted = frozenset(p.name for p in parameters) | frozenset(keep)

    def __call__(self, inputs: dict[str, Any]) -> dict[str, Any]:
        if self.accepted is None or self.accepted.issuperset(inputs):
            return inputs
        if not self._told:
            dropped = sorted(inputs.keys() - self.accepted)
            logger.warning("Batch keys that forward() does not take are dropped: %s", dropped)
            self._told = True
        return {key: value for key, value in inputs.items() if key in self.accepted}


@dataclass
class DataFeed:
    """Reads one dataset in the order of its plan, as micro-batches on the training device."""

    dataset: Any
    plan: BatchPlan
    collate_fn: Collator
    args: TrainingArguments
    strategy: TrainingStrategy
    device: str
    columns: ColumnFilter

    def __post_init__(self) -> None:
        if isinstance(self.plan, DurationBucketedPlan):
            together = self.args.gradient_accumulation_steps * self.strategy.world_size
            self.plan = self.plan.for_updates_of(together)
        self._loader = BatchLoader(
            self.dataset,
            self.plan,
            collate_fn=self.collate_fn,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory and self.device == "cuda",
            rank=self.strategy.rank,
            world_size=self.strategy.world_size,
            prefetch_factor=self.args.dataloader_prefetch_factor
            if self.args.dataloader_num_workers
            else None,
        )

    def close(self) -> None:
        """End the worker processes, which persist from epoch to epoch."""
        self._loader.close()

    def num_batches(self, epoch: int) -> int | None:
        """Micro-batches of all processes in ``epoch``; None for a stream, which none can count."""
        return None if isinstance(self.plan, StreamPlan) else self.plan.num_batches(epoch)

    def num_updates(self, epoch: int) -> int | None:
        """Accumulation windows in ``epoch``, the ragged last one included; None for a stream."""
        batches = self.num_batches(epoch)
        if batches is None:
            return None
        together = self.args.gradient_accumulation_steps * self.strategy.world_size
        return math.ceil(batches / together)

    def sample_keys(self, epoch: int, start: int) -> list[list[SampleKey]] | None:
        """Keys of the samples of this process's micro-batches from ``start`` on.

        None for a stream, whose samples have no keys.
        """
        if isinstance(self.plan, StreamPlan):
            return None
        requests = self._loader.requests(epoch, start)
        return [[request.key(n) for n in range(len(request.indices))] for request in requests]

    def batch_of(self, keys: Sequence[SampleKey]) -> MicroBatch:
        """The micro-batch of these samples with the very draws that the keys stand for."""
        first = keys[0]
        indices = [key.index for key in keys]
        request = BatchRequest(first.seed, first.epoch, first.draw, indices)
        return self._micro_batch(BatchMaker(self.dataset, self.collate_fn).make(request))

    def first_batch(self) -> MicroBatch | None:
        """The first micro-batch of the plan, whoever's it is; None for a stream."""
        if isinstance(self.plan, StreamPlan):
            return None
        indices = self.plan.batches(0)[0]
        return self.batch_of([SampleKey(self.plan.seed, 0, n, i) for n, i in enumerate(indices)])

    def batches(self, epoch: int, start: int = 0) -> Iterator[MicroBatch]:
        """This process's share of the micro-batches of ``epoch`` from number ``start`` on.

        ``start`` counts those of all processes. Earlier items are not touched.
        """
        raw_batches = self._loader.epoch(epoch, start)
        for raw in self.strategy.prepare_dataloader(raw_batches, training=True):
            yield self._micro_batch(raw)

    def windows(self, epoch: int, start: int, waited: Callable[[float], None]) -> Iterator[Any]:
        """Lists of micro-batches, ``gradient_accumulation_steps`` long but for the last.

        Args:
            epoch: which epoch of the plan.
            start: micro-batches of it that are done already, of all processes.
            waited: told the seconds spent waiting for data.
        """
        size = self.args.gradient_accumulation_steps
        batches = self.batches(epoch, start)
        clock = time.perf_counter
        while True:
            began = clock()
            window = []
            for batch in batches:
                window.append(batch)
                if len(window) == size:
                    break
            waited(clock() - began)
            if not window:
                return
            yield window

    def _micro_batch(self, raw: Any) -> MicroBatch:
        info, phase = _NO_INFO, None
        if isinstance(raw, dict):
            info = raw.pop("batch_info", None) or _NO_INFO
            phase = raw.pop("training_phase", None)
            raw = self.columns(raw)
            phase = getattr(phase, "name", phase)
        size = len(info["ids"]) if "ids" in info else _batch_size(raw)
        inputs = self.strategy.prepare_input(raw, device=self.device)
        return MicroBatch(inputs, info, size, phase)

    def fingerprint(self) -> dict[str, Any]:
        """Dataset, plan and collator as JSON, for the exact-resume signature."""
        return {
            "dataset": describe_object(self.dataset),
            "plan": self.plan.fingerprint(),
            "collator": describe_object(self.collate_fn),
        }


def _batch_size(batch: Any) -> int:
    """Leading dimension of the first array in a batch that carries no ids."""
    if hasattr(batch, "shape"):
        return int(batch.shape[0]) if batch.shape else 1
    values = list(batch.values()) if isinstance(batch, Mapping) else batch
    if isinstance(values, (list, tuple)) and values:
        first = next((v for v in values if hasattr(v, "shape") and v.shape), None)
        return int(first.shape[0]) if first is not None else _batch_size(values[0])
    return 1


def default_plan(dataset: Any, args: TrainingArguments, *, training: bool) -> BatchPlan:
    """Fixed-size batches, shuffled in training; a stream is read as it comes."""
    size = args.per_device_train_batch_size if training else args.per_device_eval_batch_size
    drop_last = training and args.dataloader_drop_last
    if isinstance(dataset, IterableDataset):
        return StreamPlan(size, seed=args.effective_data_seed, drop_last=drop_last)
    if training:
        return FixedSizePlan(len(dataset), size, args.effective_data_seed, drop_last=drop_last)
    return FixedSizePlan(len(dataset), size, seed=0, shuffle=False)


def require_dataset(dataset: Any, what: str) -> Any:
    """A dataset that is there and not empty."""
    if dataset is None:
        raise ConfigurationError(f"The Trainer needs a {what}; none was given.")
    if hasattr(dataset, "__len__") and len(dataset) == 0:
        raise DataError(f"The {what} is empty: nothing to read.")
    return dataset
