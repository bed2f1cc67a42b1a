"""Walk a configuration class by dotted key: which keys are valid where, and of which type."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

Key = Union[str, int]  # noqa: UP007 -- evaluated at run time on Python 3.10


def fields_of(kind: Any) -> dict[str, Any]:
    """Names and annotations of a pydantic model or of any dataclass; empty for other types."""
    pydantic_fields = getattr(kind, "__pydantic_fields__", None)
    if isinstance(pydantic_fields, dict):
        return {(field.alias or name): field.annotation for name, field in pydantic_fields.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return typing.get_type_hints(kind)
    return {}


def alternatives(annotation: Any) -> Iterator[Any]:
    """The types that an annotation allows, with ``Annotated``, unions and None unwrapped."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from alternatives(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from alternatives(member)
    elif annotation is not type(None):
        yield annotation


def fields_at(root: Any, path: Sequence[Key]) -> dict[str, Any]:
    """Valid keys, with their annotations, of the section at ``path`` below ``root``.

    Where a union allows several sections, the keys of all of them are valid answers.
    """
    current = list(alternatives(root))
    for key in path:
        current = [kind for outer in current for kind in _inside(outer, key)]
    found: dict[str, Any] = {}
    for kind in current:
        found.update(fields_of(kind))
    return found


def _inside(kind: Any, key: Key) -> Iterator[Any]:
    fields = fields_of(kind)
    if fields:
        if key in fields:
            yield from alternatives(fields[str(key)])
        return
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(origin, type) and arguments:
        if issubclass(origin, Mapping):
            yield from alternatives(arguments[-1])
        elif issubclass(origin, (Sequence, set, frozenset)) and isinstance(key, int):
            for argument in arguments:
                if argument is not Ellipsis:
                    yield from alternatives(argument)


def all_keys(root: Any, prefix: str = "", depth: int = 5) -> Iterator[str]:
    """Every dotted key of a configuration class, sections included."""
    if depth == 0:
        return
    for kind in alternatives(root):
        for name, annotation in fields_of(kind).items():
            key = f"{prefix}{name}"
            yield key
            yield from all_keys(annotation, f"{key}.", depth - 1)


def type_name(annotation: Any) -> str:
    """An annotation as a user would write it: ``float``, ``str | None``, ``'no' | 'steps'``."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "null"
    if origin is Annotated:
        return type_name(arguments[0])
    if origin in (Union, types.UnionType):
        return " | ".join(type_name(argument) for argument in arguments)
    if origin is typing.Literal:
        return " | ".join(repr(argument) for argument in arguments)
    if origin is not None and arguments:
        inner = ", ".join("..." if a is Ellipsis else type_name(a) for a in arguments)
        return f"{getattr(origin, '__name__', origin)}[{inner}]"
    if annotation is Any:
        return "anything"
    if fields_of(annotation):
        return "a section of keys"
    return getattr(annotation, "__name__", str(annotation))


def resolve_location(values: Any, location: Sequence[Key]) -> tuple[Key, ...]:
    """A pydantic error location without the union tags that are no keys of the configuration."""
    path: list[Key] = []
    current = values
    for position, part in enumerate(location):
        if _has(current, part):
            current = current[part]
        elif position < len(location) - 1 or not isinstance(current, Mapping):
            continue  # a tag such as 'list[str]' or the name of a union member
        path.append(part)
    return tuple(path)


def _has(section: Any, key: Key) -> bool:
    if isinstance(section, list):
        return isinstance(key, int) and key < len(section)
    return isinstance(section, Mapping) and key in section
