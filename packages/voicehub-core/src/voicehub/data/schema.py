"""How one field of a dataset item is padded: declared by a model's spec, applied by the collator.

This module imports no tensor library, so that specs stay readable without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from voicehub.errors import ConfigurationError, DataError

_SIDES = ("right", "left")


class DataTypeError(DataError, TypeError):
    """A dataset item, or a value inside it, has a type that cannot be collated."""


class SchemaTypeError(ConfigurationError, TypeError):
    """A setting of a field schema has the wrong type."""


@dataclass(frozen=True)
class AudioFieldSchema:
    """Padding rule of one variable-length field, found in an item by its dotted path.

    A derived name (``length_field``, ``mask_field``) without a dot sits beside the field itself;
    a dotted one is written from the root of the batch.

    Args:
        sequence_dim: the dimension that varies between items, counted within one item
            (negative values count from its end).
        padding_value: what fills the padding; ``None`` takes the collator's default for the field.
        padding_side: ``"right"`` or ``"left"``.
        length_field: name for the unpadded lengths, int64 of shape (batch,).
        mask_field: name for the validity mask, bool of shape (batch, padded length).
        pad_to_multiple_of: the padded length is rounded up to a multiple of this.
        allow_missing: an item without the field contributes a sequence of length zero; otherwise
            its absence is an error.

    Raises:
        ConfigurationError: a value is out of range (it is a ``ValueError``).
        SchemaTypeError: a value has the wrong type (it is also a ``TypeError``).
    """

    sequence_dim: int = 0
    padding_value: float | int | bool | None = None
    padding_side: str = "right"
    length_field: str | None = None
    mask_field: str | None = None
    pad_to_multiple_of: int | None = None
    allow_missing: bool = False

    def __post_init__(self) -> None:
        _require_int("sequence_dim", self.sequence_dim)
        if self.padding_value is not None and not isinstance(self.padding_value, (int, float)):
            raise _wrong_type("padding_value", self.padding_value, "a number or None")
        if not isinstance(self.padding_side, str):
            raise _wrong_type("padding_side", self.padding_side, "a string")
        if self.padding_side not in _SIDES:
            raise ConfigurationError(
                f"field schema: padding_side is {self.padding_side!r}; expected 'right' or 'left'."
            )
        if self.pad_to_multiple_of is not None:
            _require_int("pad_to_multiple_of", self.pad_to_multiple_of)
            if self.pad_to_multiple_of < 1:
                raise ConfigurationError(
                    "field schema: pad_to_multiple_of is "
                    f"{self.pad_to_multiple_of}; expected a positive integer or None."
                )
        if not isinstance(self.allow_missing, bool):
            raise _wrong_type("allow_missing", self.allow_missing, "True or False")
        for name in ("length_field", "mask_field"):
            _check_derived_name(name, getattr(self, name))
        if self.length_field is not None and self.length_field == self.mask_field:
            raise ConfigurationError(
                f"field schema: length_field and mask_field are both {self.length_field!r}; "
                "give them different names."
            )

    @classmethod
    def coerce(cls, value: object, path: str = "") -> AudioFieldSchema:
        """Return ``value`` as a schema; a mapping of its settings is accepted.

        Raises:
            ConfigurationError: the mapping holds a setting that does not exist.
            SchemaTypeError: ``value`` is neither a schema nor a mapping.
        """
        if isinstance(value, cls):
            return value
        where = f" of field {path!r}" if path else ""
        if not isinstance(value, Mapping):
            raise SchemaTypeError(
                f"field schema{where} is a {type(value).__name__}; "
                "expected a TTSFieldSchema or a mapping of its settings."
            )
        known = [field.name for field in fields(cls)]
        unknown = [key for key in value if key not in known]
        if unknown:
            raise ConfigurationError(
                f"field schema{where} has no setting {unknown[0]!r}; "
                f"the settings are {', '.join(known)}."
            )
        return cls(**dict(value))


TTSFieldSchema = AudioFieldSchema


def coerce_field_schemas(schemas: object) -> dict[str, AudioFieldSchema]:
    """Validate a mapping of dotted field paths to schemas (or to mappings of their settings).

    Raises:
        ConfigurationError: a path is empty or has an empty part, or two schemas derive one name.
        SchemaTypeError: the container, a path or a schema has the wrong type.
    """
    if schemas is None:
        return {}
    if not isinstance(schemas, Mapping):
        raise SchemaTypeError(
            f"field_schemas is a {type(schemas).__name__}; expected a mapping of field paths "
            "such as 'model_inputs.mel' to TTSFieldSchema."
        )
    checked: dict[str, AudioFieldSchema] = {}
    for path, schema in schemas.items():
        if not isinstance(path, str):
            raise SchemaTypeError(f"field path {path!r} is not a string.")
        if not all(path.split(".")):
            raise ConfigurationError(
                f"field path {path!r} is empty or has an empty part; "
                "expected names joined by dots, such as 'model_inputs.mel'."
            )
        checked[path] = AudioFieldSchema.coerce(schema, path)
    _check_targets(checked)
    return checked


def derived_path(source: str, name: str) -> tuple[str, ...]:
    """Return where a derived field goes: beside ``source``, or from the root when dotted."""
    if "." in name:
        return tuple(name.split("."))
    return (*source.split(".")[:-1], name)


def _check_targets(schemas: Mapping[str, AudioFieldSchema]) -> None:
    owners: dict[tuple[str, ...], str] = {tuple(path.split(".")): path for path in schemas}
    for path, schema in schemas.items():
        for name in (schema.length_field, schema.mask_field):
            if name is None:
                continue
            target = derived_path(path, name)
            if target in owners:
                raise ConfigurationError(
                    f"field schema of {path!r} writes {'.'.join(target)!r}, which the schema of "
                    f"{owners[target]!r} already reads or writes; choose another name."
                )
            owners[target] = path


def _check_derived_name(setting: str, name: object) -> None:
    if name is None:
        return
    if not isinstance(name, str):
        raise _wrong_type(setting, name, "a string or None")
    if not all(part and part == part.strip() for part in name.split(".")):
        raise ConfigurationError(
            f"field schema: {setting} is {name!r}; expected a name, or names joined by dots."
        )


def _require_int(setting: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong_type(setting, value, "an integer")


def _wrong_type(setting: str, value: Any, expected: str) -> SchemaTypeError:
    return SchemaTypeError(
        f"field schema: {setting} is {value!r} of type {type(value).__name__}; expected {expected}."
    )
