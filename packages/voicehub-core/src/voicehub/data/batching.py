"""From a request to a batch: read the samples, collate them, name whatever goes wrong."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch.utils.data import TensorDataset, default_collate, default_convert

from voicehub.data.access import (
    BatchRequest,
    is_tensor_dataset,
    sample_ids,
    sample_reader,
    wrap_error,
)
from voicehub.data.collate import default_data_collator
from voicehub.data.keyed_random import derive_seed, preserved_global_state, seed_global_state
from voicehub.data.plan import StreamPlan
from voicehub.errors import DataError, VoiceHubError

Collator = Callable[[list[Any]], Any]

_PURE_COLLATORS: tuple[Any, ...] = (default_data_collator, default_collate, default_convert)


class BatchMaker:
    """Makes the batch of a request from a map-style dataset; the same in every process."""

    def __init__(self, dataset: Any, collate_fn: Collator) -> None:
        self.dataset = dataset
        self.collate_fn = collate_fn
        self._reader = sample_reader(dataset)
        self._collator_draws = not is_pure_collator(collate_fn)
        self.make: Callable[[BatchRequest], Any] = self._make
        if self._reader.draws or self._collator_draws:
            self.make = self._make_guarded
        elif collate_fn is default_data_collator and _gathers(dataset):
            self.make = _TensorRows(dataset, self._make)

    def _make_guarded(self, request: BatchRequest) -> Any:
        with preserved_global_state():
            return self._make(request)

    def _make(self, request: BatchRequest) -> Any:
        samples = self._reader.read(request)
        try:
            if self._collator_draws:
                seed_global_state(derive_seed("voicehub.collate", *request[:3]))
            return self.collate_fn(samples)
        except Exception as error:
            ids = sample_ids(samples)
            named = f"ids {ids}" if ids else f"indices {list(request.indices)}"
            where = f"samples with {named} could not be collated (epoch {request.epoch})"
            raise wrap_error(error, where) from error


def _gathers(dataset: Any) -> TypeGuard[TensorDataset]:
    return is_tensor_dataset(dataset) and all(
        tensor.device.type == "cpu" and tensor.layout == torch.strided for tensor in dataset.tensors
    )


class _TensorRows:
    """Batches of a ``TensorDataset`` under the default collator, by one gather per tensor.

    It gives exactly what stacking the rows one by one gives, several times faster.
    """

    def __init__(self, dataset: TensorDataset, fallback: Callable[[BatchRequest], Any]) -> None:
        self.tensors = dataset.tensors
        self.fallback = fallback

    def __call__(self, request: BatchRequest) -> Any:
        rows = torch.tensor(request.indices)
        try:
            return tuple(tensor.index_select(0, rows) for tensor in self.tensors)
        except IndexError:
            return self.fallback(request)  # reads one by one and so names the sample


@dataclass(frozen=True)
class StreamRequest:
    """Which batches of a stream one rank wants."""

    plan: StreamPlan
    epoch: int
    start_batch: int
    rank: int
    world_size: int


class StreamBatchMaker:
    """Makes batches from an iterable dataset, whose position is known by count alone.

    The global random state is seeded by (seed, epoch, position) before every item and restored
    after it, so replaying a stream repeats its draws. ``set_epoch(epoch)`` is called when offered.
    """

    def __init__(self, dataset: Any, collate_fn: Collator, request: StreamRequest) -> None:
        self.dataset = dataset
        self.collate_fn = collate_fn
        self.request = request

    def batches(self) -> Iterator[Any]:
        """Yield the batches of the request, reading and dropping what comes before them."""
        request, size = self.request, self.request.plan.batch_size
        number, samples = 0, []
        for item in self._items():
            samples.append(item)
            if len(samples) == size:
                if self._wanted(number):
                    yield self._collate(number, samples)
                number, samples = number + 1, []
        if samples and not request.plan.drop_last and self._wanted(number):
            yield self._collate(number, samples)

    def _wanted(self, number: int) -> bool:
        left = number - self.request.start_batch
        return left >= 0 and left % self.request.world_size == self.request.rank

    def _items(self) -> Iterator[Any]:
        key = (self.request.plan.seed, self.request.epoch)
        set_epoch = getattr(self.dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(self.request.epoch)
        with preserved_global_state():
            seed_global_state(derive_seed("voicehub.stream", *key, "start"))
            items = iter(self.dataset)
        position = 0
        while True:
            with preserved_global_state():
                seed_global_state(derive_seed("voicehub.stream", *key, position))
                try:
                    item = next(items)
                except StopIteration:
                    return
                except Exception as error:
                    where = f"item {position} of the stream could not be read (epoch {key[1]})"
                    raise wrap_error(error, where) from error
            yield item
            position += 1

    def _collate(self, number: int, samples: list[Any]) -> Any:
        request = self.request
        with preserved_global_state():
            seed_global_state(
                derive_seed("voicehub.collate", request.plan.seed, request.epoch, number)
            )
            try:
                return self.collate_fn(samples)
            except Exception as error:
                ids = sample_ids(samples)
                where = f"batch {number} of the stream could not be collated (ids {ids})"
                raise wrap_error(error, where) from error


@dataclass(frozen=True)
class SampleFailure:
    """What a worker sends instead of a batch when reading or collating failed."""

    error_type: type[VoiceHubError]
    message: str
    worker_traceback: str

    @classmethod
    def of(cls, error: Exception) -> SampleFailure:
        """Describe ``error`` so that it can cross to the main process."""
        kind = type(error) if isinstance(error, VoiceHubError) else DataError
        return cls(kind, str(error), traceback.format_exc())

    def error(self) -> VoiceHubError:
        """Return the error to raise in the main process, with the worker's traceback as cause."""
        error = self.error_type(self.message)
        error.__cause__ = WorkerTraceback(self.worker_traceback)
        return error


class WorkerTraceback(Exception):
    """Carries the traceback of a worker process as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def is_pure_collator(collate_fn: Any) -> bool:
    """Tell whether ``collate_fn`` is known to draw nothing from global generators."""
    if any(collate_fn is known for known in _PURE_COLLATORS):
        return True
    return getattr(collate_fn, "deterministic", None) is True
