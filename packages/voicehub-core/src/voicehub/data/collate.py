"""Turns dataset items into one batch by structure alone: nesting, stacking, padding, masks.

Nothing here knows what a field means beyond a few portable names. Delay patterns, alignments,
noise, stop labels and pitch belong to the dataset, a custom collator or the adapter.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from voicehub.data.padding import (
    MISSING,
    PaddedField,
    as_tensors,
    collate_declared_field,
    collate_field,
)
from voicehub.data.schema import AudioFieldSchema, DataTypeError, coerce_field_schemas, derived_path
from voicehub.errors import DataError

FieldPath = tuple[str, ...]

_PHASE = "training_phase"
_LENGTH_SOURCES = ("input_ids", "input_values", "input_features")


class DataCollatorForAudioTraining:
    """Structural collator for mappings of tensors, arrays, numbers, strings and nested mappings.

    Equal shapes are stacked. A variable first dimension is padded on the right, otherwise a
    variable last one when the leading dimensions match. Integer ``labels`` and ``label_ids`` pad
    with ``label_pad_token_id`` and become int64 where their type cannot hold it; everything else
    pads with ``padding_value``. Strings and values of ambiguous shape stay lists.

    Args:
        padding_value: fills padding outside labels.
        label_pad_token_id: fills padding of integer ``labels`` and ``label_ids``.
        return_attention_mask: derive ``attention_mask`` (bool, (batch, length)) for padded
            ``input_ids`` that come without one.
        return_input_lengths: add ``input_lengths`` (int64, (batch,)) beside the first of
            ``input_ids``, ``input_values``, ``input_features``.
        field_schemas: padding rules by dotted path, such as ``{"model_inputs.mel": schema}``.
    """

    #: Collation draws nothing, so loaders need not guard the random state around it.
    deterministic = True

    def __init__(
        self,
        padding_value: float = 0.0,
        label_pad_token_id: int = -100,
        return_attention_mask: bool = True,
        return_input_lengths: bool = False,
        field_schemas: Mapping[str, AudioFieldSchema | Mapping[str, Any]] | None = None,
    ) -> None:
        self.padding_value = padding_value
        self.label_pad_token_id = label_pad_token_id
        self.return_attention_mask = return_attention_mask
        self.return_input_lengths = return_input_lengths
        self.field_schemas = coerce_field_schemas(field_schemas)
        self._schemas: dict[FieldPath, AudioFieldSchema] = {
            tuple(path.split(".")): schema for path, schema in self.field_schemas.items()
        }

    def __call__(self, features: Sequence[Any]) -> dict[str, Any]:
        """Collate items into one batch.

        Raises:
            DataError: the batch is empty, items disagree in their fields or phases, or a declared
                field is missing or cannot be padded.
            DataTypeError: an item is neither a mapping nor a dataclass instance.
        """
        if len(features) == 0:
            raise DataError("collation needs a non-empty batch of items; none was given.")
        items = [_as_mapping(item, row) for row, item in enumerate(features)]
        batch: dict[str, Any] = {}
        columns = _columns(items, batch)
        self._add_absent_declared(columns, len(items))
        fields: dict[FieldPath, PaddedField] = {}
        for path, values in columns.items():
            if path == (_PHASE,):
                phase = _common_phase(values)
                if phase is not None:
                    batch[_PHASE] = phase
                continue
            fields[path] = field = self._collate(path, values)
            _place(batch, path, field.value)
        self._add_derived(batch, fields)
        return batch

    def resume_fingerprint(self) -> dict[str, Any]:
        """Return the settings as JSON, for the exact-resume signature."""
        return {
            "padding_value": self.padding_value,
            "label_pad_token_id": self.label_pad_token_id,
            "return_attention_mask": self.return_attention_mask,
            "return_input_lengths": self.return_input_lengths,
            "field_schemas": {
                path: dataclasses.asdict(schema)
                for path, schema in sorted(self.field_schemas.items())
            },
        }

    def _collate(self, path: FieldPath, values: list[Any]) -> PaddedField:
        schema = self._schemas.get(path)
        name = path[0] if len(path) == 1 else ".".join(path)
        if schema is not None:
            return collate_declared_field(
                name, values, schema, self.padding_value, self.label_pad_token_id
            )
        field = collate_field(name, values, self.padding_value, self.label_pad_token_id)
        # Only values that did not combine can hide an absent one, so the common case skips this.
        if isinstance(field.value, list) and any(value is MISSING for value in values):
            absent = [row for row, value in enumerate(values) if value is MISSING]
            raise DataError(
                f"field {name!r} is missing from item {absent[0]} of the batch (and from "
                f"{len(absent)} of {len(values)} in all) but present in others; give every item "
                "the field or declare it with TTSFieldSchema(allow_missing=True)."
            )
        return field

    def _add_absent_declared(self, columns: dict[FieldPath, list[Any]], size: int) -> None:
        """Add declared fields that no item has, unless the path looks misspelt."""
        for path, schema in self._schemas.items():
            if path in columns:
                continue
            name = ".".join(path)
            below = [".".join(p) for p in columns if p[: len(path)] == path]
            if below:
                raise DataError(
                    f"declared field {name!r} is a mapping; a schema pads sequences only. "
                    f"Declare a field inside it, such as {below[0]!r}."
                )
            free = [".".join(p) for p in columns if p not in self._schemas]
            near = difflib.get_close_matches(name, free, n=1, cutoff=0.75)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            if near or not schema.allow_missing:
                raise DataError(
                    f"declared field {name!r} is absent from every item of the batch.{hint} "
                    f"The items hold {', '.join(repr('.'.join(p)) for p in columns)}. "
                    "Correct the path, or declare it with allow_missing=True if it is optional."
                )
            columns[path] = [MISSING] * size

    def _add_derived(self, batch: dict[str, Any], fields: dict[FieldPath, PaddedField]) -> None:
        for path, schema in self._schemas.items():
            source = ".".join(path)
            if schema.length_field is not None:
                target = derived_path(source, schema.length_field)
                _place_new(batch, target, fields[path].length_tensor(), source)
            if schema.mask_field is not None:
                _place_new(
                    batch, derived_path(source, schema.mask_field), fields[path].mask(), source
                )
        if self.return_attention_mask:
            for path in [path for path in fields if path[-1] == "input_ids"]:
                self._add_attention_mask(batch, path, fields[path])
        if self.return_input_lengths:
            self._add_input_lengths(batch, fields)

    def _add_attention_mask(
        self, batch: dict[str, Any], path: FieldPath, field: PaddedField
    ) -> None:
        schema = self._schemas.get(path)
        if not field.has_padding:
            return
        if schema is not None and schema.mask_field is not None:
            return
        if "attention_mask" not in _parent(batch, path):
            _place(batch, (*path[:-1], "attention_mask"), field.mask())

    def _add_input_lengths(
        self, batch: dict[str, Any], fields: dict[FieldPath, PaddedField]
    ) -> None:
        parents: tuple[FieldPath, ...] = ((), ("model_inputs",))
        paths = [(*parent, name) for parent in parents for name in _LENGTH_SOURCES]
        path = next((p for p in paths if p in fields), None)
        if path is None:
            raise DataError(
                f"return_input_lengths=True needs one of {', '.join(_LENGTH_SOURCES)} in the items."
            )
        field = fields[path]
        source = ".".join(path)
        declared = path in self._schemas
        if not isinstance(field.value, torch.Tensor) or (field.value.ndim != 2 and not declared):
            raise DataError(
                f"return_input_lengths=True cannot tell which dimension of {source!r} is the "
                "sequence; declare a TTSFieldSchema with sequence_dim for it."
            )
        lengths = field.lengths or [field.value.shape[1]] * len(field.value)
        target = (*path[:-1], "input_lengths")
        _place_new(batch, target, torch.tensor(lengths, dtype=torch.int64), source)


DataCollatorForTTSTraining = DataCollatorForAudioTraining

_STRUCTURAL = DataCollatorForAudioTraining()


def default_data_collator(features: Sequence[Any]) -> Any:
    """Collate without settings: mappings by structure, tuples by position, tensors stacked.

    Tuples give a tuple of batches and lists a list of them. Outside mappings nothing is padded.

    Raises:
        DataError: the batch is empty, or tuples or tensors differ in length or shape.
    """
    if len(features) == 0:
        raise DataError("collation needs a non-empty batch of items; none was given.")
    first = features[0]
    if isinstance(first, Mapping) or _is_dataclass_instance(first):
        return _STRUCTURAL(features)
    if isinstance(first, (tuple, list)):
        if any(len(item) != len(first) for item in features):
            raise DataError("items are tuples of different lengths; expected one length.")
        columns = [default_data_collator(column) for column in zip(*features, strict=True)]
        if hasattr(first, "_fields"):
            return type(first)(*columns)
        return tuple(columns) if isinstance(first, tuple) else columns
    tensors = as_tensors("item", features)
    if tensors is None:
        return list(features)
    shapes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes) > 1:
        raise DataError(
            f"items have different shapes ({', '.join(map(str, shapes[:4]))}) and no data_collator "
            "pads them; give items as mappings or pass a data_collator."
        )
    return torch.stack(tensors)


def _as_mapping(item: Any, row: int) -> Mapping[str, Any]:
    if type(item) is dict or isinstance(item, Mapping):
        return item
    if _is_dataclass_instance(item):
        return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    raise DataTypeError(
        f"item {row} of the batch is a {type(item).__name__}; expected a mapping of field names to "
        "values (or a dataclass instance)."
    )


def _is_dataclass_instance(item: Any) -> bool:
    return dataclasses.is_dataclass(item) and not isinstance(item, type)


def _columns(
    items: Sequence[Mapping[str, Any]], batch: dict[str, Any]
) -> dict[FieldPath, list[Any]]:
    """Return the values of every leaf by path, in the order of first appearance.

    Nested mappings, empty ones too, get their place in ``batch``.
    """
    columns: dict[FieldPath, list[Any]] = {}
    if _are_flat(items):  # by far the commonest case, and the cheapest
        return {(name,): [item[name] for item in items] for name in items[0]}
    for row, item in enumerate(items):
        _collect(item, (), row, len(items), columns, batch)
    for path in columns:
        for end in range(1, len(path)):
            if path[:end] in columns:
                raise DataError(
                    f"field {'.'.join(path[:end])!r} is a mapping in some items of the batch and a "
                    "plain value in others; expected one of the two."
                )
    return columns


def _are_flat(items: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether all items have the same field names and none holds a mapping."""
    names = items[0].keys()
    for item in items:
        if item.keys() != names:
            return False
        for value in item.values():
            if type(value) is not torch.Tensor and isinstance(value, Mapping):
                return False
    return all(isinstance(name, str) for name in names)


def _collect(
    item: Mapping[str, Any],
    prefix: FieldPath,
    row: int,
    size: int,
    columns: dict[FieldPath, list[Any]],
    batch: dict[str, Any],
) -> None:
    for name, value in item.items():
        if not isinstance(name, str):
            raise DataTypeError(
                f"item {row} of the batch has the field name {name!r}; expected a string."
            )
        path = (*prefix, name)
        if isinstance(value, Mapping):
            nested = batch.setdefault(name, {})
            _collect(value, path, row, size, columns, nested)
            continue
        column = columns.get(path)
        if column is None:
            columns[path] = column = [MISSING] * size
        column[row] = value


def _common_phase(values: Sequence[Any]) -> Any:
    """Return the phase that all items ask for."""
    missing = [row for row, value in enumerate(values) if value is MISSING or value is None]
    if len(missing) == len(values):
        return None
    if missing:
        raise DataError(
            f"either all items of a batch must provide training_phase or none; item {missing[0]} "
            "does not."
        )
    first = values[0]
    for row, value in enumerate(values):
        if value is not first and value != first:
            raise DataError(
                "all items of a batch must have the same training_phase; item 0 has "
                f"{first!r} and item {row} has {value!r}."
            )
    return first


def _parent(batch: dict[str, Any], path: FieldPath) -> dict[str, Any]:
    for name in path[:-1]:
        batch = batch.setdefault(name, {})
    return batch


def _place(batch: dict[str, Any], path: FieldPath, value: Any) -> None:
    parent = batch if len(path) == 1 else _parent(batch, path)
    parent[path[-1]] = value


def _place_new(batch: dict[str, Any], path: FieldPath, value: Any, source: str) -> None:
    """Write a derived field where the batch has none."""
    node: Any = batch
    for name in path[:-1]:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise DataError(
                f"{'.'.join(path)!r}, derived from {source!r}, lies inside a field that is no "
                "mapping; choose another name in its schema."
            )
    if path[-1] in node:
        raise DataError(
            f"{'.'.join(path)!r}, derived from {source!r}, is already a field of the items; "
            "remove it there or choose another name in the schema."
        )
    node[path[-1]] = value
