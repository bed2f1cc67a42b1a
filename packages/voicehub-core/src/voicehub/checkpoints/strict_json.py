"""Strict JSON that loses nothing: non-finite numbers are tagged instead of written as ``NaN``.

``NaN`` is no JSON, yet a log history may hold one. It is written as ``{"$float": "nan"}``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from voicehub.errors import CheckpointError

_FLOAT = "$float"


def to_jsonable(value: Any, where: str = "document") -> Any:
    """Return ``value`` with tuples as lists and non-finite floats tagged.

    Raises:
        CheckpointError: a value, named by its path, is no JSON.
    """
    if value is None or isinstance(value, (bool, str)):
        return value if value is None or type(value) in (bool, str) else str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_FLOAT: repr(float(value))}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise CheckpointError(
                    f"{where} has the key {key!r}; JSON allows strings only as keys."
                )
        return {str(key): to_jsonable(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_jsonable(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise CheckpointError(
        f"{where} is a {type(value).__name__}, which JSON cannot hold; expected numbers, strings, "
        "lists, mappings or None."
    )


def from_jsonable(value: Any) -> Any:
    """Undo ``to_jsonable`` (tuples stay lists)."""
    if isinstance(value, dict):
        if value.keys() == {_FLOAT} and value[_FLOAT] in ("nan", "inf", "-inf"):
            return float(value[_FLOAT])
        return {key: from_jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_jsonable(item) for item in value]
    return value


def dump_json(value: Any, where: str = "document") -> bytes:
    """Return strict, indented JSON with sorted keys and a final newline, in UTF-8."""
    plain = to_jsonable(value, where)
    text = json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "surrogatepass")


def parse_json(content: bytes) -> Any:
    """Parse what ``dump_json`` wrote.

    Raises:
        ValueError: the content is no JSON.
    """
    return from_jsonable(json.loads(content.decode("utf-8", "surrogatepass")))
