"""Rows that a model is measured on, and what of their manifest is left out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from voicehub.errors import DataError
from voicehub_data.manifest import ManifestRow, read_manifest


def evaluation_rows(
    manifest: str | Path, max_samples: int | None = None
) -> tuple[list[ManifestRow], Counter[str]]:
    """Read a manifest for an evaluation.

    Rows that cannot be read and rows whose id was there before are left out.

    Args:
        manifest: what ``read_manifest`` reads.
        max_samples: only the first so many rows.

    Returns:
        The rows, with unlike ids, and what was left out, counted by reason.

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
    return rows, dropped
