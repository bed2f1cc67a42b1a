"""Write rows as JSON lines, CSV or TSV that :func:`read_manifest` reads back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.files import write_file
from voicehub_data.manifest.rows import ManifestRow

_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
_COLUMNS = ("id", "audio_filepath", "duration", "offset", "text", "speaker", "language")


def write_manifest(
    rows: Sequence[ManifestRow], path: str | Path, *, overwrite: bool = False, relative: bool = True
) -> Path:
    """Write a manifest in one step: a reader never sees half of it.

    Args:
        rows: what to write.
        path: ``.jsonl``, ``.csv`` or ``.tsv``.
        overwrite: replace an existing file.
        relative: write audio paths relative to the manifest's folder where they lie below it, so
            that the folder can be moved.

    Raises:
        ConfigurationError: the suffix is unknown.
        DataError: the file exists, cannot be written, or (TSV) a text holds a tab or line break.
    """
    path = Path(path)
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        raise ConfigurationError(f"{path}: write a .jsonl, .csv or .tsv file.")
    if path.exists() and not overwrite:
        raise DataError(f"{path}: the file exists; choose another name or allow overwriting.")
    base = path.parent.absolute() if relative else None
    records = [_record(row, base) for row in rows]
    content = _as_jsonl(records) if kind == "jsonl" else _as_table(records, kind, path)
    write_file(path, content.encode("utf-8"))
    return path


def _record(row: ManifestRow, base: Path | None) -> dict[str, Any]:
    written = row.audio_filepath
    if base is not None and written.is_relative_to(base):
        written = written.relative_to(base)
    record: dict[str, Any] = {"id": row.id, "audio_filepath": written.as_posix()}
    if row.duration is not None:
        record["duration"] = row.duration
    if row.is_segment or row.offset:
        record["offset"] = row.offset
    record["text"] = row.text
    if row.speaker is not None:
        record["speaker"] = row.speaker
    if row.language is not None:
        record["language"] = row.language
    record.update({key: value for key, value in row.extra.items() if key not in record})
    return record


def _as_jsonl(records: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _as_table(records: Sequence[dict[str, Any]], kind: str, path: Path) -> str:
    present = {key for record in records for key in record}
    extra = sorted(present.difference(_COLUMNS))
    columns = [name for name in _COLUMNS if name in present] + extra
    if kind == "csv":
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return buffer.getvalue()
    lines = ["\t".join(columns)]
    for record in records:
        cells = ["" if record.get(name) is None else str(record[name]) for name in columns]
        if any(character in cell for cell in cells for character in "\t\r\n"):
            raise DataError(
                f"{path}: row {record['id']!r} holds a tab or a line break, which TSV cannot hold; "
                "write .jsonl or .csv."
            )
        lines.append("\t".join(cells))
    return "\n".join(lines) + "\n"
