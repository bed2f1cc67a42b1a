"""Leave rows out of training, by stated rules, with a count for every reason.

``kept + dropped = total`` always holds, and evaluation rows are left alone unless asked for:
a figure on the part of a test set that was easy to keep is not the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from voicehub.errors import DataError
from voicehub_data.config import FilterConfig
from voicehub_data.manifest.rows import ManifestRow

#: Seconds by which a duration may miss a bound: the end of a segment less its beginning is off in
#: the last places (1.2 - 0.4 < 0.8), and a microsecond is less than a sample.
_ROUNDING = 1e-6


class RowFilter(Protocol):
    """A rule: the reason to drop a row, or None to keep it."""

    def reason(self, row: ManifestRow) -> str | None: ...


@dataclass(frozen=True, slots=True)
class DurationFilter:
    """Keep rows of ``min_duration`` to ``max_duration`` seconds, bounds included."""

    min_duration: float | None = None
    max_duration: float | None = None

    def reason(self, row: ManifestRow) -> str | None:
        duration = _known_duration(row, "duration")
        if self.min_duration is not None and duration < self.min_duration - _ROUNDING:
            return "too_short"
        if self.max_duration is not None and duration > self.max_duration + _ROUNDING:
            return "too_long"
        return None


@dataclass(frozen=True, slots=True)
class SpeechRateFilter:
    """Keep rows whose characters (white space not counted) per second lie in the bounds."""

    min_chars_per_second: float | None = None
    max_chars_per_second: float | None = None

    def reason(self, row: ManifestRow) -> str | None:
        rate = count_characters(row.text) / _known_duration(row, "rate-of-speech")
        if self.min_chars_per_second is not None and rate < self.min_chars_per_second:
            return "speech_too_slow"
        if self.max_chars_per_second is not None and rate > self.max_chars_per_second:
            return "speech_too_fast"
        return None


@dataclass(frozen=True, slots=True)
class EmptyTextFilter:
    """Drop rows whose text is empty or white space."""

    def reason(self, row: ManifestRow) -> str | None:
        return None if row.text.strip() else "empty_text"


@dataclass(frozen=True, slots=True)
class FilterResult:
    """What was kept, and what was dropped under each reason. A row has one reason, the first."""

    kept: list[ManifestRow]
    dropped: dict[str, list[ManifestRow]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return len(self.kept) + self.num_dropped

    @property
    def num_dropped(self) -> int:
        return sum(len(rows) for rows in self.dropped.values())

    @property
    def counts(self) -> dict[str, int]:
        """Reason -> number of rows dropped for it."""
        return {reason: len(rows) for reason, rows in self.dropped.items()}

    def describe(self) -> str:
        """``kept 90 of 100 rows; dropped 8 too_short, 2 empty_text``."""
        text = f"kept {len(self.kept)} of {self.total} rows"
        if self.dropped:
            parts = (f"{len(rows)} {reason}" for reason, rows in self.dropped.items())
            text += "; dropped " + ", ".join(parts)
        return text


def filter_rows(rows: Sequence[ManifestRow], *filters: RowFilter) -> FilterResult:
    """Apply rules in order; a row goes under the first reason that holds.

    Raises:
        DataError: a rule needs the duration of a row that has none.
    """
    result = FilterResult([])
    for row in rows:
        reason = next(
            (reason for rule in filters if (reason := rule.reason(row)) is not None), None
        )
        if reason is None:
            result.kept.append(row)
        else:
            result.dropped.setdefault(reason, []).append(row)
    return result


def filters_from(config: FilterConfig) -> list[RowFilter]:
    """The rules that a configuration asks for, cheapest first."""
    rules: list[RowFilter] = []
    if config.drop_empty_text:
        rules.append(EmptyTextFilter())
    if config.min_duration is not None or config.max_duration is not None:
        rules.append(DurationFilter(config.min_duration, config.max_duration))
    if config.min_chars_per_second is not None or config.max_chars_per_second is not None:
        rules.append(SpeechRateFilter(config.min_chars_per_second, config.max_chars_per_second))
    return rules


def filter_split(
    rows: Sequence[ManifestRow], config: FilterConfig, *, training: bool, name: str = ""
) -> FilterResult:
    """Filter one split as configured; evaluation rows pass untouched unless ``apply_to_eval``.

    Raises:
        DataError: over ``max_drop_fraction`` would be dropped, or nothing would be kept.
    """
    if not training and not config.apply_to_eval:
        return FilterResult(list(rows))
    result = filter_rows(rows, *filters_from(config))
    label = name or ("the training data" if training else "the evaluation data")
    if result.total and result.num_dropped > config.max_drop_fraction * result.total:
        raise DataError(
            f"{label}: {result.num_dropped} of {result.total} rows would be dropped "
            f"({_examples(result.dropped)}), over max_drop_fraction {config.max_drop_fraction:g}. "
            "Correct the data or the limits, or raise max_drop_fraction."
        )
    if result.total and not result.kept:
        raise DataError(f"{label}: every row was dropped ({_examples(result.dropped)}).")
    return result


def count_characters(text: str) -> int:
    """Characters of a transcript without white space."""
    return sum(not character.isspace() for character in text)


def _known_duration(row: ManifestRow, rule: str) -> float:
    if row.duration is None:
        raise DataError(
            f"{row.location}: the {rule} filter needs a duration and the row has none. Fill them "
            "in with voicehub_data.durations.fill_durations(manifest)."
        )
    return row.duration


def _examples(dropped: Mapping[str, Sequence[ManifestRow]]) -> str:
    return "; ".join(
        f"{len(rows)} {reason}, e.g. row {rows[0].row} of {rows[0].source.name}"
        for reason, rows in dropped.items()
    )
