"""Checks that the frozen spec classes share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from voicehub.errors import RecipeError

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def require_name(value: Any, *, where: str) -> str:
    """Return ``value`` if it is a non-empty string without surrounding space."""
    if not isinstance(value, str):
        raise TypeError(f"{where} must be a string, got {type(value).__name__}.")
    if not value or value != value.strip():
        raise RecipeError(f"{where} must be a non-empty name without spaces around it: {value!r}.")
    return value


def name_tuple(values: Any, *, where: str, allow_empty: bool = False) -> tuple[str, ...]:
    """Return ``values`` as a tuple of distinct names; a bare string is refused.

    A string is iterable, so ``"model"`` given for ``("model",)`` would otherwise
    become five one-letter names.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{where} must be a tuple of names, got {values!r}; write ({values!r},).")
    names = tuple(values)
    for name in names:
        if name != "" or not allow_empty:
            require_name(name, where=f"{where} entry")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise RecipeError(f"{where} names {', '.join(repeated)} twice.")
    return names


def pair_tuple(values: Any, *, where: str) -> tuple[tuple[str, Any], ...]:
    """Return a mapping, or an iterable of pairs, as a tuple of ``(name, value)`` pairs."""
    items = tuple(values.items()) if isinstance(values, Mapping) else tuple(values)
    for item in items:
        if not isinstance(item, tuple) or len(item) != 2:
            raise TypeError(f"{where} must be a mapping or pairs (name, value), got {item!r}.")
        require_name(item[0], where=f"{where} name")
    return items


def require_reference(value: Any, *, where: str) -> str | None:
    """Return ``value`` if it is None or a lazy ``"module:attribute"`` reference."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(
            f"{where} must be a 'module:attribute' string, got {type(value).__name__}; "
            "a string keeps the import lazy."
        )
    if not _REFERENCE.fullmatch(value):
        raise RecipeError(f"{where} must have the form 'module:attribute', got {value!r}.")
    return value
