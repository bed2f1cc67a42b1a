"""How samples are read from a dataset so that every random draw is keyed by sample.

Three kinds of datasets exist for the loader:

- *keyed*: declares ``get_item(index, key)`` and draws from generators keyed by the ``SampleKey``;
- *pure*: draws nothing, so it is indexed plainly (``TensorDataset``, lists, Hugging Face datasets,
  or anything with ``deterministic = True``; ``Subset`` and ``ConcatDataset`` take after what they
  hold);
- *unknown*: may draw from the global generators of torch, NumPy or Python. Those are seeded by
  key before each sample and restored after the batch, so that such a dataset, too, gives the same
  samples with any number of workers and leaves the training's own random state alone.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard

from torch.utils.data import ConcatDataset, Subset, TensorDataset

from voicehub.data.keyed_random import (
    SampleKey,
    derive_seed,
    seed_global_state,
)
from voicehub.errors import DataError, VoiceHubError


class BatchRequest(NamedTuple):
    """One batch to read: its samples, and where it stands in the epoch's global plan."""

    seed: int
    epoch: int
    first_draw: int
    indices: Sequence[int]

    def key(self, position: int) -> SampleKey:
        """Return the key of the sample at ``position`` within this batch."""
        return SampleKey(self.seed, self.epoch, self.first_draw + position, self.indices[position])


class KeyedDataset(Protocol):
    """A dataset that draws from keyed generators only."""

    def get_item(self, index: int, key: SampleKey) -> Any:
        """Return sample ``index`` with all its random choices made from ``key``."""
        ...


class SampleReader(Protocol):
    """Reads the samples of one batch.

    Attributes:
        draws: reading seeds the global random state, which the caller has to preserve.
    """

    draws: bool

    def read(self, request: BatchRequest) -> list[Any]:
        """Return the samples in the order of ``request.indices``."""
        ...


class PureReader:
    """Plain indexing of a dataset that draws nothing; batched where ``__getitems__`` is offered."""

    draws = False

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        many = getattr(dataset, "__getitems__", None)
        self._read_many = many if callable(many) else None

    def read(self, request: BatchRequest) -> list[Any]:
        """Return the samples in the order of ``request.indices``."""
        if self._read_many is not None:
            try:
                return list(self._read_many(list(request.indices)))
            except Exception as error:
                self._read_each(request)  # names the sample, unless only the whole batch fails
                raise wrap_error(error, f"samples {list(request.indices)} together") from error
        return self._read_each(request)

    def _read_each(self, request: BatchRequest) -> list[Any]:
        dataset, samples = self.dataset, []
        try:
            for index in request.indices:
                samples.append(dataset[index])  # noqa: PERF401 - a failure needs the count so far
        except Exception as error:
            raise _named(error, dataset, request, len(samples)) from error
        return samples


class KeyedReader:
    """Reads through ``get_item(index, key)``."""

    draws = False

    def __init__(self, dataset: Any, get_item: Callable[[int, SampleKey], Any]) -> None:
        self.dataset = dataset
        self.get_item = get_item

    def read(self, request: BatchRequest) -> list[Any]:
        """Return the samples in the order of ``request.indices``."""
        samples: list[Any] = []
        try:
            for index in request.indices:
                samples.append(self.get_item(index, request.key(len(samples))))
        except Exception as error:
            raise _named(error, self.dataset, request, len(samples)) from error
        return samples


class SeedingReader:
    """Indexes a dataset that may draw, under global random state seeded by the sample's key."""

    draws = True

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def read(self, request: BatchRequest) -> list[Any]:
        """Return the samples in the order of ``request.indices``."""
        dataset, samples = self.dataset, []
        seed, epoch, draw, indices = request
        try:
            for position, index in enumerate(indices):
                seed_global_state(
                    derive_seed("voicehub.sample", seed, epoch, draw + position, index)
                )
                samples.append(dataset[index])
        except Exception as error:
            raise _named(error, dataset, request, len(samples)) from error
        return samples


def sample_reader(dataset: Any) -> SampleReader:
    """Return the reader that suits ``dataset``."""
    get_item = keyed_access(dataset)
    if get_item is not None:
        return KeyedReader(dataset, get_item)
    return PureReader(dataset) if is_pure(dataset) else SeedingReader(dataset)


def keyed_access(dataset: Any) -> Callable[[int, SampleKey], Any] | None:
    """Return ``dataset``'s keyed access, also through ``Subset`` and ``ConcatDataset``."""
    get_item = getattr(dataset, "get_item", None)
    if callable(get_item):
        return get_item  # type: ignore[no-any-return]
    if _is_plain(dataset, Subset):
        inner = keyed_access(dataset.dataset)
        return None if inner is None else _SubsetAccess(inner, dataset.indices)
    if _is_plain(dataset, ConcatDataset):
        parts = [keyed_access(part) for part in dataset.datasets]
        whole = [part for part in parts if part is not None]
        if len(whole) == len(parts):
            return _ConcatAccess(whole, dataset.cumulative_sizes)
    return None


def is_pure(dataset: Any) -> bool:
    """Tell whether indexing ``dataset`` is known to draw nothing.

    ``deterministic = True`` on the dataset says so; ``deterministic = False`` withdraws it.
    """
    declared = getattr(dataset, "deterministic", None)
    if isinstance(declared, bool):
        return declared
    if type(dataset) in (list, tuple, range) or is_tensor_dataset(dataset):
        return True
    if _is_plain(dataset, Subset):
        return is_pure(dataset.dataset)
    if _is_plain(dataset, ConcatDataset):
        return all(is_pure(part) for part in dataset.datasets)
    return _is_untransformed_hf_dataset(dataset)


def is_tensor_dataset(dataset: Any) -> TypeGuard[TensorDataset]:
    """Tell whether ``dataset`` indexes as ``TensorDataset`` does (subclasses may not)."""
    return _is_plain(dataset, TensorDataset)


def describe_sample(dataset: Any, index: int) -> str:
    """Name a sample for a message: its position, and its id when the dataset can tell.

    A dataset tells through ``sample_id(index) -> str``.
    """
    sample_id = getattr(dataset, "sample_id", None)
    if callable(sample_id):
        try:
            return f"sample {index} (id {sample_id(index)!r})"
        except Exception:  # the message about the sample matters more than its name
            return f"sample {index}"
    return f"sample {index}"


def sample_ids(samples: Sequence[Any]) -> list[str]:
    """Return the ids that mapping samples carry under ``"id"``."""
    return [str(s["id"]) for s in samples if isinstance(s, Mapping) and "id" in s]


def wrap_error(error: Exception, where: str) -> VoiceHubError:
    """Return an error of our own that says where ``error`` arose; its class is kept if ours."""
    if not isinstance(error, VoiceHubError):
        return DataError(f"{where}: {type(error).__name__}: {error}")
    try:
        return type(error)(f"{where}: {error}")
    except TypeError:  # a class of a plugin that wants more than a message
        return DataError(f"{where}: {error}")


class _SubsetAccess:
    def __init__(self, inner: Callable[[int, SampleKey], Any], indices: Sequence[int]) -> None:
        self.inner = inner
        self.indices = indices

    def __call__(self, index: int, key: SampleKey) -> Any:
        return self.inner(self.indices[index], key)


class _ConcatAccess:
    def __init__(
        self, parts: list[Callable[[int, SampleKey], Any]], cumulative_sizes: list[int]
    ) -> None:
        self.parts = parts
        self.cumulative_sizes = cumulative_sizes

    def __call__(self, index: int, key: SampleKey) -> Any:
        part = bisect_right(self.cumulative_sizes, index)
        start = self.cumulative_sizes[part - 1] if part else 0
        return self.parts[part](index - start, key)


def _named(error: Exception, dataset: Any, request: BatchRequest, position: int) -> VoiceHubError:
    where = (
        f"{describe_sample(dataset, request.indices[position])} could not be read "
        f"(epoch {request.epoch}, draw {request.first_draw + position})"
    )
    return wrap_error(error, where)


def _is_plain(dataset: Any, cls: type[Any]) -> bool:
    """Tell whether ``dataset`` is a ``cls`` that has not changed how it is indexed."""
    return isinstance(dataset, cls) and type(dataset).__getitem__ is cls.__getitem__


def _is_untransformed_hf_dataset(dataset: Any) -> bool:
    # The library is not ours to import: an instance can only exist once someone else has.
    module = sys.modules.get("datasets")
    cls = getattr(module, "Dataset", None)
    if not isinstance(cls, type) or not isinstance(dataset, cls):
        return False
    # A transform set by the user (format "custom") may draw; stored columns cannot.
    described = getattr(dataset, "format", {})
    return bool(described.get("type") != "custom")
