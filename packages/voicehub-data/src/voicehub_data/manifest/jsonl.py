"""JSON lines, one object a line, with the field names of NeMo manifests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voicehub_data.manifest.lines import read_text_file
from voicehub_data.manifest.records import Columns, RowBuilder
from voicehub_data.manifest.rows import Manifest


def read_jsonl(
    path: Path, *, audio_root: Path | None = None, column_map: Mapping[str, str] | None = None
) -> Manifest:
    """Read ``{"audio_filepath": ..., "duration": ..., "text": ..., "speaker": ..., "offset": ...}``
    lines. Rows that cannot be read are in ``Manifest.problems``.

    Raises:
        DataError: the file is missing, empty or not text.
        ConfigurationError: ``column_map`` names what does not exist.
    """
    file = read_text_file(path)
    records: list[tuple[int, dict[str, Any]]] = []
    failures: list[tuple[int, str]] = []
    available: dict[str, None] = {}
    for line in file.lines():
        record, message = _parse(line.text, line.error)
        if record is None:
            failures.append((line.number, message))
        else:
            records.append((line.number, record))
            available.update(dict.fromkeys(record))
    columns = Columns.resolve(column_map if records else None, available)
    builder = RowBuilder(path, audio_root or path.parent, columns)
    for number, record in records:
        builder.add(number, record)
    for number, message in failures:
        builder.problem(number, message)
    rows, problems = builder.finish()
    problems.sort(key=lambda problem: problem.row)
    return Manifest(tuple(rows), file.digest, path, "jsonl", tuple(problems))


def _parse(text: str | None, error: str) -> tuple[dict[str, Any] | None, str]:
    """The record of a line, or None and what is wrong with it."""
    if text is None:
        return None, error
    try:
        record = json.loads(text)
    except json.JSONDecodeError as failure:
        if text.lstrip().startswith("["):
            return None, "a JSON array; write one object a line (JSON lines), without brackets"
        return None, f"not JSON ({failure.msg} at character {failure.pos + 1}): {_shorten(text)}"
    except RecursionError:
        return None, "JSON nested too deeply"
    if not isinstance(record, dict):
        return None, f"expected one JSON object a line, found {_shorten(text)}"
    return record, ""


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
