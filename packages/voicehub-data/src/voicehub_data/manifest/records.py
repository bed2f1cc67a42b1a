"""From one record of a source (column name -> value) to a :class:`ManifestRow`.

All table-like formats end here, so that a wrong value is refused in the same words everywhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean
from voicehub_data.manifest.rows import ManifestRow, RowProblem

# Field of a row -> column names that are understood without a column map, in order.
DEFAULT_COLUMNS: dict[str, tuple[str, ...]] = {
    "audio_filepath": ("audio_filepath",),
    "text": ("text",),
    "duration": ("duration",),
    "offset": ("offset",),
    "speaker": ("speaker",),
    "language": ("language", "lang"),
    "id": ("id", "utt_id"),
}
FIELDS = tuple(DEFAULT_COLUMNS)

#: Names that other tools give to what we need, for an advice; they are never read unasked.
_USUAL = {
    "audio_filepath": (
        "path", "audio", "audio_path", "audio_file", "file", "filename", "file_name",
        "filepath", "wav", "wav_path", "wav_filepath",
    ),
    "text": ("sentence", "transcript", "transcription", "txt", "normalized_text", "label"),
}  # fmt: skip
_LISTED = 8

Record = Mapping[str, Any]


class RecordError(ValueError):
    """One record is wrong; the message says how. Becomes a :class:`RowProblem`."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column each field is read from.

    ``mapped`` holds fields that the user mapped: their columns must exist.
    """

    names: dict[str, str]
    mapped: frozenset[str] = frozenset()

    @classmethod
    def resolve(cls, column_map: Mapping[str, str] | None, available: Iterable[str]) -> Columns:
        """Choose columns among ``available``; a mapped column that is not there is an error.

        Raises:
            ConfigurationError: ``column_map`` names an unknown field or an absent column.
        """
        available = list(available)
        mapped = dict(column_map or {})
        for name in mapped:
            if name not in DEFAULT_COLUMNS:
                raise ConfigurationError(
                    f"column_map: unknown field {name!r}.{did_you_mean(name, FIELDS)} "
                    f"Fields are {', '.join(FIELDS)}; write field=column."
                )
        for name, column in mapped.items():
            if column not in available:
                raise ConfigurationError(
                    f"column_map: {name}={column}: the source has no column {column!r}."
                    f"{did_you_mean(column, available)} Its columns are "
                    f"{', '.join(available) or '(none)'}."
                )
        names = dict(mapped)
        for name, candidates in DEFAULT_COLUMNS.items():
            if name not in names:
                found = next((c for c in candidates if c in available), None)
                if found is not None and found not in mapped.values():
                    names[name] = found
        return cls(names, frozenset(mapped))


@dataclass(slots=True)
class RowBuilder:
    """Builds rows, resolves paths and ids, and collects problems with their row numbers.

    Args:
        source: file named in rows and problems.
        audio_root: folder that relative audio paths start from.
        columns: which column holds which field.
    """

    source: Path
    audio_root: Path
    columns: Columns
    rows: list[ManifestRow] = field(default_factory=list)
    problems: list[RowProblem] = field(default_factory=list)
    _derived: list[bool] = field(default_factory=list)

    def add(self, number: int, record: Record) -> None:
        """Append the row for ``record``, or the problem that it has."""
        try:
            row, derived = self._build(number, record)
        except RecordError as error:
            self.problem(number, str(error))
        else:
            self.rows.append(row)
            self._derived.append(derived)

    def problem(self, number: int, message: str, kind: str = "invalid-row") -> None:
        self.problems.append(RowProblem(self.source, number, message, kind))

    def finish(self) -> tuple[list[ManifestRow], list[RowProblem]]:
        """Rows with unique derived ids, and problems; ids that the source gives stay."""
        counts = Counter(row.id for row in self.rows)
        rows = [
            replace(row, id=f"{row.id}#{row.row}") if derived and counts[row.id] > 1 else row
            for row, derived in zip(self.rows, self._derived, strict=True)
        ]
        return rows, self.problems

    def _build(self, number: int, record: Record) -> tuple[ManifestRow, bool]:
        names = self.columns.names
        values = {name: record.get(column) for name, column in names.items()}
        if "audio_filepath" not in names:
            raise RecordError(f"no audio_filepath among its keys; {_how_to_map(record)}")
        written = required_path(values.get("audio_filepath"), names.get("audio_filepath"))
        raw_offset = values.get("offset")
        offset = seconds(raw_offset, "offset", minimum=0.0) or 0.0
        duration = seconds(values.get("duration"), "duration", minimum=0.0)
        if duration == 0.0:
            raise RecordError("duration is 0; expected seconds > 0")
        is_segment = raw_offset is not None and raw_offset != ""
        identity = text_of(values.get("id"), "id")
        derived = identity is None or identity == ""
        if derived:
            identity = derive_id(written, offset if is_segment else None)
        used = set(names.values())
        row = ManifestRow(
            id=str(identity),
            audio_filepath=resolve_path(written, self.audio_root),
            text=text_of(values.get("text"), "text") or "",
            duration=duration,
            offset=offset,
            speaker=text_of(values.get("speaker"), "speaker") or None,
            language=text_of(values.get("language"), "language") or None,
            source=self.source,
            row=number,
            is_segment=is_segment,
            extra={key: value for key, value in record.items() if key not in used},
        )
        return row, derived


def _how_to_map(record: Record) -> str:
    """The keys of a record that names no audio, and the setting that maps them."""
    keys = [str(key) for key in record]
    usual = {
        name: next((key for key in keys if key.strip().lower() in guesses), None)
        for name, guesses in _USUAL.items()
        if name == "audio_filepath" or not set(DEFAULT_COLUMNS[name]) & set(keys)
    }
    mapped = {name: key for name, key in usual.items() if key is not None}
    mapped = mapped or {"audio_filepath": "KEY"}
    example = ", ".join(f"{name}: {key}" for name, key in mapped.items())
    options = " ".join(f"--column-map {name}={key}" for name, key in mapped.items())
    found = f"{', '.join(keys[:_LISTED])}{', ...' if len(keys) > _LISTED else ''}"
    return (
        f"they are {found or 'none'}. Every row needs the path of its audio file. Map other names: "
        f"a source may be {{path: MANIFEST, column_map: {{{example}}}}}; `voicehub data` takes "
        f"{options}"
    )


def required_path(value: Any, column: str | None) -> str:
    """The audio path as written; raises :class:`RecordError` where it is missing or unusable."""
    label = column or "audio_filepath"
    if value is None or value == "":
        raise RecordError(f"no {label}; every row needs the path of its audio file")
    if not isinstance(value, str):
        raise RecordError(f"{label} is {value!r}; expected a path as text")
    if "://" in value:
        raise RecordError(f"{label} {value!r} is a remote address; copy the file to this machine")
    if "\0" in value:
        raise RecordError(f"{label} {value!r} holds a NUL character")
    return value


def resolve_path(written: str, root: Path) -> Path:
    """Absolute path of an audio file; relative ones start at ``root``. Links are not followed."""
    path = Path(written)
    if written.startswith("~"):
        path = path.expanduser()
    return path if path.is_absolute() else root / path


def derive_id(written: str, offset: float | None) -> str:
    """Id of a row that has none: its path without suffix, and its offset for a segment."""
    stem = Path(written).with_suffix("").as_posix()
    return stem if offset is None else f"{stem}@{offset:g}"


def seconds(value: Any, name: str, *, minimum: float) -> float | None:
    """A time in seconds from a number or its text; None and empty text mean "not given".

    Raises:
        RecordError: not a number, not finite, or under ``minimum``.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise RecordError(f"{name} is {value!r}; expected seconds as a number")
    try:
        number = float(value)
    except ValueError:
        raise RecordError(f"{name} is {value!r}; expected seconds as a number") from None
    if not math.isfinite(number):
        raise RecordError(f"{name} is {value!r}; expected a finite number of seconds")
    if number < minimum:
        raise RecordError(f"{name} is {number:g}; expected seconds >= {minimum:g}")
    return number


def float_or_none(text: str) -> float | None:
    """The number that a text spells, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def text_of(value: Any, name: str) -> str | None:
    """Text as written; numbers (ids, digit transcripts) become text; anything else is an error."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordError(f"{name} is {value!r}; expected text")
    return str(value)
