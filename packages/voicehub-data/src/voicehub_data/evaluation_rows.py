"""Rows that a model is measured on, and what of their manifest is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from voicehub.errors import DataError
from voicehub_data.manifest import ManifestRow, read_manifest


def evaluation_rows(
    manifest: str | Path, max_samples: int | None = None
) -> tuple[list[ManifestRow], Counter[str], list[str]]:
    """Read a manifest for an evaluation.

    Rows that cannot be read and rows whose id was there before are left out.

    Args:
        manifest: what ``read_manifest`` reads.
        max_samples: only the first so many rows.

    Returns:
        The rows, with unlike ids, what was left out, counted by reason, and what was said of it.

    Raises:
        DataError: nothing is left.
    """
    read = read_manifest(manifest, role="eval", strict=False)
    dropped = Counter(problem.kind for problem in read.problems)
    repeated = {(p.source, p.row) for p in read.problems if p.kind == "duplicate-id"}
    rows = [row for row in read.rows if (row.source, row.row) not in repeated]
    if max_samples is not None:
        rows = rows[:max_samples]
    if not rows:
        raise DataError(f"{manifest}: the manifest holds no usable row.")
    return rows, dropped, [str(problem) for problem in read.problems]


def evaluation_notes(
    rows: Sequence[ManifestRow], left_out: Sequence[str], limit: int = 3
) -> list[str]:
    """What a report says of rows that were left out, and of error rates that it cannot have.

    Args:
        rows: those that were measured.
        left_out: what was said of each of the others.
        limit: so many of them are named.
    """
    notes = [f"left out: {message}" for message in left_out[:limit]]
    if len(left_out) > limit:
        notes.append(f"left out: {len(left_out) - limit} more")
    if rows and not any(row.text.strip() for row in rows):
        notes.append(
            "no error rates: no row has a text to compare with. Give each recording its "
            "transcript: a NAME.txt or NAME.lab beside it in a folder, the key text in JSON lines"
        )
    return notes
