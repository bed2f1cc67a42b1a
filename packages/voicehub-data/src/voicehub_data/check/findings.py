"""What a check reports: findings by row, and their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from voicehub_data.filters import FilterResult
from voicehub_data.manifest.rows import ManifestRow

Severity = Literal["error", "warning"]

# Kind -> severity. An error means that the row cannot be trained on as the manifest says; a
# warning, that it can, but somebody should have a look.
SEVERITIES: dict[str, Severity] = {
    "invalid-row": "error",
    "duplicate-id": "error",
    "missing-file": "error",
    "empty-file": "error",
    "undecodable": "error",
    "truncated": "error",
    "wrong-header": "error",
    "non-finite": "error",
    "duration-mismatch": "error",
    "offset-past-end": "error",
    "wrong-rate": "warning",
    "multi-channel": "warning",
    "clipped": "warning",
    "silent": "warning",
    "very-short": "warning",
    "duplicate-content": "warning",
    "empty-text": "warning",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with one row.

    Attributes:
        row: 1-based line in ``source``.
        id: the row's id; empty where the row could not be read.
        path: audio file, or None where the row could not be read.
        kind: one of :data:`SEVERITIES`.
        message: what was found and, for errors, what was expected.
        severity: ``"error"`` or ``"warning"``.
        source: manifest file.
    """

    row: int
    id: str
    path: Path | None
    kind: str
    message: str
    severity: Severity
    source: Path

    def __str__(self) -> str:
        label = f" (id {self.id!r})" if self.id else ""
        return f"{self.source}, row {self.row}{label}: {self.kind}: {self.message}"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        values = asdict(self)
        values["path"] = None if self.path is None else str(self.path)
        values["source"] = str(self.source)
        return values


def finding(row: ManifestRow, kind: str, message: str) -> Finding:
    """A finding about a row that was read."""
    return Finding(row.row, row.id, row.audio_filepath, kind, message, SEVERITIES[kind], row.source)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All findings of one manifest, in the order of its rows.

    Attributes:
        findings: what was found.
        rows_ok: rows without a finding of severity error.
        num_rows: rows of the manifest, unreadable ones included.
        num_files: different audio files.
        seconds: audio in ``rows_ok``, as far as durations are known.
        decoded: samples were looked at, not headers alone.
    """

    findings: tuple[Finding, ...]
    rows_ok: tuple[ManifestRow, ...]
    num_rows: int
    num_files: int
    seconds: float
    decoded: bool

    @property
    def counts(self) -> dict[str, int]:
        """Kind -> number of findings, most frequent first."""
        return dict(Counter(item.kind for item in self.findings).most_common())

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(item for item in self.findings if item.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(item for item in self.findings if item.severity == "warning")

    def sort_rows(self, rows: Iterable[ManifestRow]) -> FilterResult:
        """Kept and dropped rows: a row is dropped under the kind of its first error."""
        first: dict[tuple[Path, int], str] = {}
        for item in self.errors:
            first.setdefault((item.source, item.row), item.kind)
        result = FilterResult([])
        for row in rows:
            kind = first.get((row.source, row.row))
            if kind is None:
                result.kept.append(row)
            else:
                result.dropped.setdefault(kind, []).append(row)
        return result

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready summary with every finding."""
        return {
            "rows": self.num_rows,
            "rows_ok": len(self.rows_ok),
            "files": self.num_files,
            "seconds": round(self.seconds, 3),
            "decoded": self.decoded,
            "errors": len(self.errors),
            "warnings": len(self.warnings),
            "counts": self.counts,
            "findings": [item.as_dict() for item in self.findings],
        }
