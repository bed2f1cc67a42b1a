"""Turn pydantic's validation errors into messages that name the key and what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from voicehub.suggest import did_you_mean

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

UNKNOWN_KEY_TYPES = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


def explain_detail(detail: ErrorDetails, known: Iterable[str]) -> str:
    """One line for one pydantic error; ``known`` are the valid keys at that place."""
    key = ".".join(str(part) for part in detail["loc"]) or "(whole configuration)"
    if detail["type"] in UNKNOWN_KEY_TYPES:
        return f"unknown key '{key}'.{did_you_mean(key.rsplit('.', 1)[-1], known)}"
    message = detail["msg"].removeprefix("Value error, ")
    if not detail["loc"]:
        return message
    return f"'{key}': {message} (got {detail['input']!r})"


def explain_validation_error(
    error: ValidationError,
    known: Iterable[str],
    owner: str,
    sections: Mapping[str, Iterable[str]] | None = None,
) -> str:
    """Several lines, one per problem, headed by the name of what was being validated.

    ``sections`` are the valid keys below those keys that hold further ones.
    """
    names, below = list(known), dict(sections or {})
    lines = []
    for detail in error.errors(include_url=False):
        path = detail["loc"]
        valid = below.get(str(path[0]), names) if len(path) > 1 else names
        lines.append(explain_detail(detail, valid))
    if len(lines) == 1:
        return f"{owner}: {lines[0]}"
    return f"{owner}: {len(lines)} problems\n" + "\n".join(f"  - {line}" for line in lines)
