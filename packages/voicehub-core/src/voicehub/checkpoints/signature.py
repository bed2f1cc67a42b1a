"""The exact-resume signature: everything that must be equal for a resume to be bit-identical."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from voicehub.checkpoints.strict_json import dump_json, parse_json


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


ABSENT = _Absent()


class Difference(NamedTuple):
    """One entry that differs: its dotted path, the checkpoint's value and the current one."""

    path: str
    saved: Any
    current: Any

    def __str__(self) -> str:
        return f"{self.path}: checkpoint={self.saved!r}, current={self.current!r}"


def compare_signatures(saved: Any, current: Any) -> list[Difference]:
    """Return every entry that differs, in the order of the saved signature.

    Both sides are compared as JSON: tuples equal lists, but ``1`` equals neither ``1.0`` nor
    ``True``.
    """
    return list(_compare("", _as_json(saved), _as_json(current)))


def describe(differences: Sequence[Difference], limit: int = 8) -> str:
    """Return one line for each difference, the first ``limit`` of them."""
    lines = [str(difference) for difference in differences[:limit]]
    if len(differences) > limit:
        lines.append(f"and {len(differences) - limit} more")
    return "\n".join(lines)


def _as_json(value: Any) -> Any:
    return parse_json(dump_json(value, "resume signature"))


def _compare(path: str, saved: Any, current: Any) -> Iterator[Difference]:
    if isinstance(saved, Mapping) and isinstance(current, Mapping):
        for key in [*saved, *(key for key in current if key not in saved)]:
            below = f"{path}.{key}" if path else key
            yield from _compare(below, saved.get(key, ABSENT), current.get(key, ABSENT))
    elif isinstance(saved, list) and isinstance(current, list) and len(saved) == len(current):
        for number, (left, right) in enumerate(zip(saved, current, strict=True)):
            yield from _compare(f"{path}[{number}]", left, right)
    elif type(saved) is not type(current) or not _equal(saved, current):
        yield Difference(path, saved, current)


def _equal(saved: Any, current: Any) -> bool:
    # NaN equals NaN here: an unchanged setting is no difference.
    return bool(saved == current or (saved != saved and current != current))
