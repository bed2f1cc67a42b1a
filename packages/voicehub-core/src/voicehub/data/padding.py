"""Stacking and padding of one field's values: conversion to tensors, shapes, lengths, masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from voicehub.data.schema import AudioFieldSchema
from voicehub.errors import DataError

LABEL_NAMES = frozenset({"labels", "label_ids"})
_INTEGER_NAMES = LABEL_NAMES | {"input_ids", "token_type_ids", "position_ids"}
_NEEDS_PROMOTION = frozenset({torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64})


class _MissingType:
    """The value of a field that an item does not have."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING = _MissingType()


@dataclass(slots=True)
class PaddedField:
    """One field of a batch.

    Attributes:
        value: a tensor with the batch first, or a list where the values could not be combined.
        lengths: unpadded lengths along the padded dimension; ``None`` where none was padded and
            no schema names one.
        padded_length: size of the padded dimension.
        side: the side that carries the padding.
    """

    value: Any
    lengths: list[int] | None = None
    padded_length: int = 0
    side: str = "right"

    def mask(self) -> torch.Tensor:
        """Return the validity mask, bool of shape (batch, padded length)."""
        lengths = self.length_tensor()[:, None]
        positions = torch.arange(self.padded_length)[None, :]
        if self.side == "left":
            return positions >= self.padded_length - lengths
        return positions < lengths

    def length_tensor(self) -> torch.Tensor:
        """Return the unpadded lengths, int64 of shape (batch,)."""
        return torch.tensor(self.lengths, dtype=torch.int64)

    @property
    def has_padding(self) -> bool:
        """Whether any value is shorter than the padded length."""
        return self.lengths is not None and min(self.lengths) < self.padded_length


def collate_field(
    path: str, values: Sequence[Any], padding: float, label_padding: int
) -> PaddedField:
    """Combine the values of a field that no schema describes.

    Equal shapes are stacked; a variable first dimension, otherwise a variable last one, is padded
    on the right; anything else stays a list.
    """
    tensors = as_tensors(path, values)
    if tensors is None:
        return PaddedField(list(values))
    tensors, padding = _with_padding_value(path, tensors, None, padding, label_padding)
    shapes = [tensor.shape for tensor in tensors]
    first = shapes[0]
    if shapes.count(first) == len(shapes):
        return PaddedField(torch.stack(tensors))
    if any(len(shape) != len(first) for shape in shapes):
        return PaddedField(list(values))
    if all(shape[1:] == first[1:] for shape in shapes):
        dim = 0
    elif all(shape[:-1] == first[:-1] for shape in shapes):
        dim = len(first) - 1
    else:
        return PaddedField(list(values))
    lengths = [shape[dim] for shape in shapes]
    return PaddedField(
        _pad(path, tensors, dim, max(lengths), "right", padding), lengths, max(lengths)
    )


def collate_declared_field(
    path: str,
    values: Sequence[Any],
    schema: AudioFieldSchema,
    padding: float,
    label_padding: int,
) -> PaddedField:
    """Pad a field by its schema; absent values are ``MISSING`` or ``None``.

    Raises:
        DataError: a value is missing without ``allow_missing``, is no numeric sequence, or differs
            from the others in rank or outside ``sequence_dim``.
    """
    present = [value for value in values if value is not MISSING and value is not None]
    if len(present) < len(values) and not schema.allow_missing:
        rows = [row for row, v in enumerate(values) if v is MISSING or v is None]
        raise DataError(
            f"declared field {path!r} is missing from items {_some(rows)} of the batch; give every "
            "item the field or declare it with allow_missing=True."
        )
    if not present:
        # Rank and type are unknown here; an empty sequence of numbers claims the least.
        present = [torch.empty(0, dtype=_default_dtype(path))]
    tensors = as_tensors(path, present)
    if tensors is None:
        raise DataError(
            f"declared field {path!r} holds a {type(present[0]).__name__}; a schema pads numeric "
            "sequences only. Remove the schema or give tensors, arrays or lists of numbers."
        )
    tensors, padding = _with_padding_value(path, tensors, schema, padding, label_padding)
    dim = _sequence_dim(path, tensors, schema)
    template = list(tensors[0].shape)
    template[dim] = 0
    filled = iter(tensors)
    complete = [
        tensors[0].new_empty(template) if value is MISSING or value is None else next(filled)
        for value in values
    ]
    lengths = [tensor.shape[dim] for tensor in complete]
    longest = max(lengths)
    if schema.pad_to_multiple_of is not None:
        longest = math.ceil(longest / schema.pad_to_multiple_of) * schema.pad_to_multiple_of
    side = schema.padding_side
    value = _pad(path, complete, dim, longest, side, padding)
    return PaddedField(value, lengths, longest, side)


def as_tensors(path: str, values: Sequence[Any]) -> list[torch.Tensor] | None:
    """Return the values as dense tensors of one dtype, or ``None`` where any is not numeric.

    Raises:
        DataError: tensors or arrays mix kinds of numbers (whole and fractional, say), which would
            change one of them silently. Plain Python numbers may mix.
    """
    tensors: list[torch.Tensor] = []
    for value in values:
        tensor = value if type(value) is torch.Tensor else _as_tensor(value)
        if tensor is None or tensor.layout is not torch.strided or tensor.is_nested:
            return None
        tensors.append(tensor)
    dtypes = [tensor.dtype for tensor in tensors]
    if dtypes.count(dtypes[0]) == len(dtypes) and not _is_empty_list(values[0]):
        return tensors
    return _unify(path, values, tensors)


def _as_tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (bool, int, float)):
        return torch.tensor(value)
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            return None
        # from_numpy refuses negative strides and foreign byte order, and warns of read-only arrays.
        plain = np.require(value, value.dtype.newbyteorder("="), ["C", "W"])
        return torch.from_numpy(plain)
    if isinstance(value, np.generic):
        return torch.as_tensor(value) if value.dtype.kind in "biufc" else None
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return _list_as_tensor(value)
    return None


def _list_as_tensor(value: Sequence[Any]) -> torch.Tensor | None:
    leaf: Any = value
    while isinstance(leaf, (list, tuple)) and len(leaf) and not hasattr(leaf, "_fields"):
        leaf = leaf[0]
    if not isinstance(leaf, (list, tuple, bool, int, float, np.number, np.bool_)):
        return None
    try:
        return torch.tensor(value)
    except (TypeError, ValueError, RuntimeError):  # ragged, mixed with text, or beyond int64
        return None


def _unify(path: str, values: Sequence[Any], tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Give the tensors one dtype; empty lists take after the others."""
    known = [t for v, t in zip(values, tensors, strict=True) if not _is_empty_list(v)]
    if not known:
        dtype = _default_dtype(path)
    else:
        dtype = known[0].dtype
        for tensor in known[1:]:
            dtype = torch.promote_types(dtype, tensor.dtype)
        strict = [v for v in values if isinstance(v, (torch.Tensor, np.ndarray))]
        kinds = {_kind(t.dtype) for v, t in zip(values, tensors, strict=True) if _is_array(v)}
        if strict and len(kinds) > 1:
            names = sorted({str(t.dtype) for t in known})
            raise DataError(
                f"field {path!r} mixes {' and '.join(names)} within one batch; give all items one "
                "type, since combining them would change values silently."
            )
    return [tensor.to(dtype) for tensor in tensors]


def _with_padding_value(
    path: str,
    tensors: list[torch.Tensor],
    schema: AudioFieldSchema | None,
    padding: float,
    label_padding: int,
) -> tuple[list[torch.Tensor], float]:
    """Choose the padding value; integer labels become int64 where they could not hold theirs."""
    dtype = tensors[0].dtype
    is_label = path.rpartition(".")[2] in LABEL_NAMES
    if is_label and not (dtype.is_floating_point or dtype.is_complex):
        padding = label_padding
        if dtype in _NEEDS_PROMOTION:
            tensors = [tensor.to(torch.int64) for tensor in tensors]
    if schema is not None and schema.padding_value is not None:
        padding = schema.padding_value
    return tensors, padding


def _pad(
    path: str, tensors: list[torch.Tensor], dim: int, length: int, side: str, padding: float
) -> torch.Tensor:
    if all(tensor.shape[dim] == length for tensor in tensors):
        return torch.stack(tensors)
    first = tensors[0]
    _check_padding_value(path, first.dtype, padding)
    if dim == 0 and side == "right" and max(t.shape[0] for t in tensors) == length:
        return pad_sequence(tensors, batch_first=True, padding_value=padding)
    shape = list(first.shape)
    shape[dim] = length
    batch = first.new_full((len(tensors), *shape), padding)
    for row, tensor in enumerate(tensors):
        size = tensor.shape[dim]
        start = length - size if side == "left" else 0
        batch[row].narrow(dim, start, size).copy_(tensor)
    return batch


def _check_padding_value(path: str, dtype: torch.dtype, padding: float) -> None:
    if dtype.is_floating_point or dtype.is_complex:
        return
    low, high = (0, 1) if dtype == torch.bool else _bounds(dtype)
    if not (math.isfinite(padding) and padding == int(padding) and low <= padding <= high):
        raise DataError(
            f"field {path!r} of type {dtype} cannot be padded with {padding!r}; "
            f"expected a whole number from {low} to {high}."
        )


def _bounds(dtype: torch.dtype) -> tuple[int, int]:
    info = torch.iinfo(dtype)
    return info.min, info.max


def _sequence_dim(path: str, tensors: list[torch.Tensor], schema: AudioFieldSchema) -> int:
    rank = tensors[0].ndim
    if rank == 0:
        raise DataError(
            f"declared field {path!r} is a single number in some item; a schema pads sequences "
            "only. Remove the schema or give sequences."
        )
    ranks = sorted({tensor.ndim for tensor in tensors})
    if len(ranks) > 1:
        raise DataError(
            f"declared field {path!r} has different numbers of dimensions within one batch "
            f"({', '.join(map(str, ranks))}); expected one."
        )
    dim = schema.sequence_dim + rank if schema.sequence_dim < 0 else schema.sequence_dim
    if not 0 <= dim < rank:
        raise DataError(
            f"declared field {path!r} has {rank} dimension(s) per item; sequence_dim="
            f"{schema.sequence_dim} is out of range."
        )
    outside = {tuple(t.shape[:dim]) + tuple(t.shape[dim + 1 :]) for t in tensors}
    if len(outside) > 1:
        shapes = sorted({tuple(tensor.shape) for tensor in tensors})
        raise DataError(
            f"declared field {path!r} differs outside sequence_dim={schema.sequence_dim}: shapes "
            f"{', '.join(map(str, shapes[:4]))}; only that dimension may vary."
        )
    return dim


def _default_dtype(path: str) -> torch.dtype:
    name = path.rpartition(".")[2]
    return torch.int64 if name in _INTEGER_NAMES else torch.get_default_dtype()


def _kind(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "bool"
    if dtype.is_complex:
        return "complex"
    return "floating" if dtype.is_floating_point else "integer"


def _is_array(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, np.ndarray))


def _is_empty_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 0


def _some(rows: Sequence[int], limit: int = 8) -> str:
    shown = ", ".join(map(str, rows[:limit]))
    return f"{shown} and {len(rows) - limit} more" if len(rows) > limit else shown
