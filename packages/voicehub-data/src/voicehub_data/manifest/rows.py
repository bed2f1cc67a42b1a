"""The row and the manifest: what every reader returns, whatever the source's format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from voicehub.errors import DataError


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One utterance.

    Attributes:
        id: unique within its manifest; keys random draws and joins predictions with references.
        audio_filepath: absolute path of the audio file.
        text: transcript; empty where the source gives none.
        duration: length in seconds of the utterance (of the segment, for a segment); None where
            the source does not say (see :func:`voicehub_data.durations.fill_durations`).
        offset: start within the file, in seconds.
        speaker, language: as the source names them, or None.
        source: manifest file that the row was read from.
        row: 1-based line in it (for sources without lines, the 1-based position).
        is_segment: the source gave an offset or an end, so the row may cover part of its file.
        extra: the remaining columns, as read.
    """

    id: str
    audio_filepath: Path
    text: str
    duration: float | None = None
    offset: float = 0.0
    speaker: str | None = None
    language: str | None = None
    source: Path = Path()
    row: int = 0
    is_segment: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def location(self) -> str:
        """``train.jsonl, row 12 (id 'x')``: how messages point at the row."""
        return f"{self.source}, row {self.row} (id {self.id!r})"


@dataclass(frozen=True, slots=True)
class RowProblem:
    """A row that could not be read: nothing is dropped without one of these."""

    source: Path
    row: int
    message: str
    kind: str = "invalid-row"

    def __str__(self) -> str:
        return f"{self.source}, row {self.row}: {self.message}"


@dataclass(frozen=True, slots=True)
class Manifest(Sequence[ManifestRow]):
    """The rows of one source, in its order.

    Attributes:
        rows: utterances.
        digest: SHA-256 (hex) of the source's content: identifies the data in a run's record.
        path: the file or directory read, absolute (for a Hub data set, its id).
        kind: format, e.g. ``"jsonl"``.
        problems: rows that could not be read; empty unless read with ``strict=False``.
        notes: what the reader chose that a user should know, e.g. that a subset was taken.
    """

    rows: tuple[ManifestRow, ...]
    digest: str
    path: Path
    kind: str = "jsonl"
    problems: tuple[RowProblem, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ManifestRow]:
        return iter(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def with_rows(self, rows: Sequence[ManifestRow], *notes: str) -> Manifest:
        """The same source with other rows (e.g. after a filter) and further notes."""
        return replace(self, rows=tuple(rows), notes=(*self.notes, *notes))

    @property
    def total_seconds(self) -> float:
        """Sum of the known durations, in seconds."""
        return sum(row.duration or 0.0 for row in self.rows)


def rows_digest(rows: Sequence[ManifestRow]) -> str:
    """SHA-256 (hex) of what the rows say, without where the files lie.

    Two copies of a corpus in different folders have equal digests.
    """
    digest = hashlib.sha256()
    for row in rows:
        fields = [row.id, row.audio_filepath.name, row.text, row.duration, row.offset]
        line = json.dumps([*fields, row.speaker, row.language], ensure_ascii=False)
        digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def raise_problems(path: Path, problems: Sequence[RowProblem], total: int) -> None:
    """Raise one :class:`DataError` that lists the first problems, or return when there is none."""
    if not problems:
        return
    shown = "\n".join(f"  row {problem.row}: {problem.message}" for problem in problems[:5])
    more = f"\n  ... and {len(problems) - 5} more" if len(problems) > 5 else ""
    raise DataError(
        f"{path}: {len(problems)} of {total} rows cannot be read:\n{shown}{more}\n"
        f"Correct them; `voicehub data check {path}` lists them all."
    )
