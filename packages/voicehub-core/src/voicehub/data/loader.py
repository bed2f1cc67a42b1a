"""Batches of an epoch, from any position, with any number of workers, always the same.

The plan and the keys decide order and content; workers only change who does the work. The main
process's random state is never touched: unknown datasets and collators are guarded (see
``voicehub.data.access``), and torch's DataLoader gets a generator of its own.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from voicehub.data.access import BatchRequest
from voicehub.data.batching import (
    BatchMaker,
    Collator,
    SampleFailure,
    StreamBatchMaker,
    StreamRequest,
)
from voicehub.data.plan import BatchPlan, StreamPlan, check_rank, without_collections
from voicehub.errors import ConfigurationError, DataError


class DeadWorkerError(DataError, RuntimeError):
    """A worker process ended before it delivered its batch."""


class BatchLoader:
    """Loads the batches of a plan; workers, if any, persist from epoch to epoch.

    Args:
        dataset: a map-style dataset, or an ``IterableDataset`` together with a ``StreamPlan``.
        plan: the global order; ``plan.seed`` enters the key of every sample.
        collate_fn: turns a list of samples into a batch. One that draws from global generators
            sees them seeded by key, unless it has ``deterministic = True``.
        num_workers: processes that read ahead; the batches do not depend on it.
        pin_memory: copy batches to page-locked memory; ignored where no CUDA device is available.
        rank: this process's rank.
        world_size: number of processes that share the plan.
        prefetch_factor: batches read ahead by each worker.
        multiprocessing_context: start method of workers, such as ``"spawn"``; the platform's
            default otherwise.
    """

    def __init__(
        self,
        dataset: Any,
        plan: BatchPlan,
        *,
        collate_fn: Collator,
        num_workers: int = 0,
        pin_memory: bool = False,
        rank: int = 0,
        world_size: int = 1,
        prefetch_factor: int | None = None,
        multiprocessing_context: str | None = None,
    ) -> None:
        check_rank(rank, world_size)
        if num_workers < 0:
            raise ConfigurationError(f"num_workers is {num_workers}; expected 0 or more.")
        is_stream = isinstance(dataset, IterableDataset)
        if is_stream is not isinstance(plan, StreamPlan):
            raise ConfigurationError(
                "an IterableDataset needs a StreamPlan, and only it takes one; got "
                f"{type(dataset).__name__} with {type(plan).__name__}."
            )
        self.dataset = dataset
        self.plan = plan
        self.collate_fn = collate_fn
        self.num_workers = num_workers
        self.pin_memory = pin_memory and torch.cuda.is_available()
        self.rank = rank
        self.world_size = world_size
        self.prefetch_factor = prefetch_factor
        self.multiprocessing_context = multiprocessing_context
        self._workers: tuple[_RequestQueue, DataLoader[Any]] | None = None

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[Any]:
        """Yield this rank's share of the batches of ``epoch`` from ``start_batch`` on.

        ``start_batch`` counts the batches of all ranks. Those before it are not read. A stream is
        the exception: it is replayed up to there.

        Raises:
            ConfigurationError: ``start_batch`` lies beyond the end of the epoch.
            DataError: a sample cannot be read or collated (named).
            DeadWorkerError: a worker was killed.
        """
        if isinstance(self.plan, StreamPlan):
            return self._stream(self.plan, epoch, start_batch)
        requests = self.requests(epoch, start_batch)
        if self.num_workers == 0:
            return self._load_here(requests)
        return self._load_in_workers(requests)

    def close(self) -> None:
        """End the workers; a later epoch starts new ones."""
        if self._workers is not None:
            iterator = getattr(self._workers[1], "_iterator", None)
            self._workers = None
            if iterator is not None:
                iterator._shutdown_workers()

    def __enter__(self) -> BatchLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def requests(self, epoch: int, start_batch: int) -> list[BatchRequest]:
        """Return what this rank reads of ``epoch`` from batch ``start_batch`` of the plan on.

        The first batch that is left is that of rank 0, wherever in the epoch it stands.

        Raises:
            ConfigurationError: ``start_batch`` lies beyond the end of the epoch.
        """
        batches = self.plan.batches(epoch)
        if not 0 <= start_batch <= len(batches):
            raise ConfigurationError(
                f"start_batch is {start_batch} but epoch {epoch} holds {len(batches)} batches; the "
                "plan or the data has changed."
            )
        mine = range(start_batch + self.rank, len(batches), self.world_size)
        # Draws are counted over the global plan, so that keys do not depend on the world size.
        first_draws = list(accumulate(map(len, batches), initial=0))
        seed = self.plan.seed
        with without_collections():
            return [BatchRequest(seed, epoch, first_draws[n], batches[n]) for n in mine]

    def _load_here(self, requests: list[BatchRequest]) -> Iterator[Any]:
        make = BatchMaker(self.dataset, self.collate_fn).make
        if not self.pin_memory:
            return map(make, requests)
        return (pin(make(request)) for request in requests)

    def _load_in_workers(self, requests: list[BatchRequest]) -> Iterator[Any]:
        if self._workers is None:
            queue = _RequestQueue()
            source = _WorkerBatches(BatchMaker(self.dataset, self.collate_fn))
            self._workers = (queue, self._torch_loader(source, self.num_workers, queue))
        queue, loader = self._workers
        queue.requests = requests
        batches = iter(loader)
        return (self._receive(batches, request) for request in requests)

    def _receive(self, batches: Iterator[Any], request: BatchRequest) -> Any:
        try:
            return _next_batch(batches, f"samples {list(request.indices[:8])}")
        except DeadWorkerError:
            self.close()
            raise

    def _stream(self, plan: StreamPlan, epoch: int, start_batch: int) -> Iterator[Any]:
        request = StreamRequest(plan, epoch, start_batch, self.rank, self.world_size)
        maker = StreamBatchMaker(self.dataset, self.collate_fn, request)
        if self.num_workers == 0:
            return map(pin, maker.batches()) if self.pin_memory else maker.batches()
        # One worker reads the stream in its own order; more would have to share it out.
        return _until_stop(iter(self._torch_loader(_WorkerStream(maker), 1, None)))

    def _torch_loader(
        self, source: Dataset[Any], num_workers: int, sampler: _RequestQueue | None
    ) -> DataLoader[Any]:
        return DataLoader(
            source,
            batch_size=None,
            sampler=sampler,
            num_workers=num_workers,
            collate_fn=_unchanged,
            pin_memory=self.pin_memory,
            # torch draws the workers' base seed from the global generator unless given another.
            generator=torch.Generator().manual_seed(0),
            prefetch_factor=self.prefetch_factor,
            persistent_workers=sampler is not None,
            multiprocessing_context=self.multiprocessing_context,
            worker_init_fn=_freeze_inherited,
        )


def _freeze_inherited(worker: int) -> None:
    """Keep the garbage collector off what a forked worker shares with the main process.

    Looking at an object writes to it, and what is written to is no longer shared.
    """
    gc.freeze()


def build_loader(
    dataset: Any,
    plan: BatchPlan,
    *,
    epoch: int,
    start_batch: int = 0,
    collate_fn: Collator,
    num_workers: int = 0,
    pin_memory: bool = False,
    rank: int = 0,
    world_size: int = 1,
    prefetch_factor: int | None = None,
) -> Iterator[Any]:
    """Yield one rank's batches of one epoch; see ``BatchLoader``, which keeps workers for more."""
    loader = BatchLoader(
        dataset,
        plan,
        collate_fn=collate_fn,
        num_workers=num_workers,
        pin_memory=pin_memory,
        rank=rank,
        world_size=world_size,
        prefetch_factor=prefetch_factor,
    )
    batches = loader.epoch(epoch, start_batch)
    return batches if num_workers == 0 else _closing(loader, batches)


def pin(value: Any) -> Any:
    """Return ``value`` with every tensor inside dicts, lists and tuples in page-locked memory."""
    if isinstance(value, torch.Tensor):
        return value.pin_memory()
    if isinstance(value, dict):
        return {name: pin(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(pin, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(pin, value))
    return value


class _RequestQueue:
    """The sampler of a persistent DataLoader: the requests of whichever epoch is on."""

    def __init__(self) -> None:
        self.requests: list[BatchRequest] = []

    def __iter__(self) -> Iterator[BatchRequest]:
        return iter(self.requests)

    def __len__(self) -> int:
        return len(self.requests)


class _WorkerBatches(Dataset[Any]):
    """A dataset of whole batches, indexed by request."""

    def __init__(self, maker: BatchMaker) -> None:
        self.maker = maker

    def __getitem__(self, request: Any) -> Any:
        try:
            return self.maker.make(request)
        except Exception as error:
            return SampleFailure.of(error)


class _WorkerStream(IterableDataset[Any]):
    """A stream of whole batches."""

    def __init__(self, maker: StreamBatchMaker) -> None:
        self.maker = maker

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self.maker.batches()
        except Exception as error:
            yield SampleFailure.of(error)


def _unchanged(batch: Any) -> Any:
    return batch


def _next_batch(batches: Iterator[Any], due: str) -> Any:
    """Return the next batch that a worker made, or raise what it reports."""
    try:
        batch = next(batches)
    except RuntimeError as error:
        raise DeadWorkerError(
            f"a data loading worker ended while preparing batches; the next one due holds {due}. "
            "Memory is the usual cause: lower dataloader_num_workers or the batch size. "
            f"({error})"
        ) from error
    if isinstance(batch, SampleFailure):
        raise batch.error()
    return batch


def _until_stop(batches: Iterator[Any]) -> Iterator[Any]:
    while True:
        try:
            batch = _next_batch(batches, "items of the stream")
        except StopIteration:
            return
        yield batch


def _closing(loader: BatchLoader, batches: Iterator[Any]) -> Iterator[Any]:
    with loader:
        yield from batches
