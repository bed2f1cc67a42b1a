"""Leave out rows by what their columns say: ``down_votes above 0``, ``genre one of 'music'``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from voicehub.errors import ConfigurationError, DataError
from voicehub.suggest import did_you_mean
from voicehub_data.config import ExcludeRule
from voicehub_data.filters import FilterResult
from voicehub_data.manifest.rows import ManifestRow

_FIELDS = ("text", "duration", "offset", "speaker", "language", "id")


def exclude_rows(rows: Sequence[ManifestRow], rules: Sequence[ExcludeRule]) -> FilterResult:
    """Apply rules in order; a row goes under the first that it matches.

    Raises:
        ConfigurationError: no row has the column, or a rule matches no row at all: misspelt
            columns and values would pass in silence otherwise.
        DataError: a value that should be compared with a number is none.
    """
    result = FilterResult([])
    matched = [0] * len(rules)
    for rule in rules:
        _require_column(rows, rule)
    for row in rows:
        first = None
        for position, rule in enumerate(rules):
            if _matches(row, rule):
                matched[position] += 1
                first = rule if first is None else first
        if first is None:
            result.kept.append(row)
        else:
            result.dropped.setdefault(f"excluded: {first.describe()}", []).append(row)
    for rule, count in zip(rules, matched, strict=True):
        if not count:
            raise ConfigurationError(_matches_none(rows, rule))
    return result


def _require_column(rows: Sequence[ManifestRow], rule: ExcludeRule) -> None:
    if rule.column in _FIELDS or any(rule.column in row.extra for row in rows):
        return
    known = dict.fromkeys([*_FIELDS, *(name for row in rows for name in row.extra)])
    raise ConfigurationError(
        f"exclude_where: no row has a column {rule.column!r}.{did_you_mean(rule.column, known)} "
        f"There are {', '.join(known)}."
    )


def _matches(row: ManifestRow, rule: ExcludeRule) -> bool:
    value = _value(row, rule.column)
    if value is None or value == "":
        return False
    if rule.values is not None and any(_equal(value, wanted) for wanted in rule.values):
        return True
    if rule.above is None and rule.below is None:
        return False
    number = _number(row, rule, value)
    return (rule.above is not None and number > rule.above) or (
        rule.below is not None and number < rule.below
    )


def _value(row: ManifestRow, column: str) -> Any:
    return getattr(row, column) if column in _FIELDS else row.extra.get(column)


def _equal(value: Any, wanted: Any) -> bool:
    """Equal and of one kind; tables hold text, so a number also equals its text."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return isinstance(value, bool) and isinstance(wanted, bool) and value == wanted
    return bool(value == wanted) or (isinstance(value, str) and value == str(wanted))


def _number(row: ManifestRow, rule: ExcludeRule, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"{row.location}: exclude_where compares {rule.column} with a number, and the row has "
            f"{value!r}."
        ) from None


def _matches_none(rows: Sequence[ManifestRow], rule: ExcludeRule) -> str:
    found = dict.fromkeys(repr(v) for row in rows if (v := _value(row, rule.column)) is not None)
    shown = ", ".join(list(found)[:8]) + (", ..." if len(found) > 8 else "")
    return (
        f"exclude_where: no row has {rule.describe()}, so the rule does nothing. "
        f"The column holds {shown or 'nothing'}. Correct the rule or remove it."
    )
