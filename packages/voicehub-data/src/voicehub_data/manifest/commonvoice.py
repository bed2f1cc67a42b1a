"""Common Voice releases: TSV files beside a folder ``clips/``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from voicehub.errors import DataError
from voicehub_data.manifest.lines import read_text_file
from voicehub_data.manifest.records import float_or_none
from voicehub_data.manifest.rows import Manifest, ManifestRow
from voicehub_data.manifest.tables import read_tsv, split_lines

_COLUMNS = {
    "audio_filepath": "path",
    "text": "sentence",
    "speaker": "client_id",
    "language": "locale",
}


def read_commonvoice(
    path: Path, *, audio_root: Path | None = None, column_map: Mapping[str, str] | None = None
) -> Manifest:
    """Read ``train.tsv`` and its like: path, sentence, client_id and locale become fields.

    ``clip_durations.tsv`` beside it (milliseconds) gives durations where the release has it.

    Raises:
        DataError: the file is missing or not such a table.
        ConfigurationError: a column does not exist.
    """
    if path.is_dir():
        raise DataError(f"{path}: a directory; give one of its files, e.g. {path / 'train.tsv'}.")
    file = read_text_file(path)
    _, header = next(split_lines(file, "\t"), (1, ""))
    columns = {name: column for name, column in _COLUMNS.items() if column in header}
    columns.update(column_map or {})
    manifest = read_tsv(path, audio_root=audio_root or path.parent / "clips", column_map=columns)
    durations = _clip_durations(path.parent / "clip_durations.tsv")
    rows = [_finished(row, durations) for row in manifest.rows]
    return replace(manifest.with_rows(rows), kind="commonvoice")


def _finished(row: ManifestRow, durations: Mapping[str, float]) -> ManifestRow:
    duration = durations.get(row.audio_filepath.name) if row.duration is None else row.duration
    return replace(row, text=_unquoted(row.text), duration=duration)


def _unquoted(text: str) -> str:
    """Undo the quoting of some releases: ``\"He said \"\"no\"\".\"`` is He said "no"."""
    if len(text) > 1 and text.startswith('"') and text.endswith('"') and '""' in text[1:-1]:
        return text[1:-1].replace('""', '"')
    return text


def _clip_durations(path: Path) -> dict[str, float]:
    """File name -> seconds; empty where the release has no such table."""
    if not path.exists():
        return {}
    durations: dict[str, float] = {}
    lines = split_lines(read_text_file(path), "\t")
    next(lines, None)
    for number, cells in lines:
        milliseconds = float_or_none(cells[1]) if len(cells) == 2 else None
        if milliseconds is None or not milliseconds >= 0:
            raise DataError(f"{path}, row {number}: expected a file name and milliseconds.")
        durations[cells[0]] = milliseconds / 1000.0
    return {name: value for name, value in durations.items() if value > 0}
