"""CSV and TSV with a header line and, where its names differ, a column map."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.manifest.lines import TextFile, read_text_file
from voicehub_data.manifest.records import Columns, RowBuilder
from voicehub_data.manifest.rows import Manifest

# A line's number, and its cells or what is wrong with it.
Cells = tuple[int, list[str] | str]


def read_csv(
    path: Path, *, audio_root: Path | None = None, column_map: Mapping[str, str] | None = None
) -> Manifest:
    """Read comma-separated values (RFC 4180 quoting; a quoted cell may span lines).

    Raises:
        DataError: the file is missing, empty, not text, or has no usable header.
        ConfigurationError: ``column_map`` names what does not exist.
    """
    file = read_text_file(path)
    return _read_table(file, "csv", _csv_cells(file), audio_root, column_map)


def read_tsv(
    path: Path, *, audio_root: Path | None = None, column_map: Mapping[str, str] | None = None
) -> Manifest:
    """Read tab-separated values: one line a row, quotes are ordinary characters.

    An unbalanced quotation mark in a transcript therefore never swallows the lines behind it.
    """
    file = read_text_file(path)
    return _read_table(file, "tsv", split_lines(file, "\t"), audio_root, column_map)


def split_lines(file: TextFile, separator: str) -> Iterator[Cells]:
    """Lines cut at a separator, without any quoting."""
    for line in file.lines():
        yield line.number, line.error if line.text is None else line.text.split(separator)


def _csv_cells(file: TextFile) -> Iterator[Cells]:
    bad = {line.number: line.error for line in file.lines() if line.text is None}
    text = file.content.decode("utf-8", "replace")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    start = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield (
                start,
                f"not CSV ({error}), so that this row and all behind it are lost; a quotation mark "
                "opened on this line may not be closed",
            )
            return
        if cells is None:
            return
        stop = reader.line_num
        broken = next((bad[number] for number in range(start, stop + 1) if number in bad), None)
        if any(cell.strip() for cell in cells):
            yield start, cells if broken is None else broken
        start = stop + 1


def _read_table(
    file: TextFile,
    kind: str,
    lines: Iterator[Cells],
    audio_root: Path | None,
    column_map: Mapping[str, str] | None,
) -> Manifest:
    _, header = next(lines, (1, "no header"))
    if isinstance(header, str):
        raise DataError(f"{file.path}: the header line cannot be read: {header}.")
    header = [name.strip() for name in header]
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise DataError(f"{file.path}: two columns are named {repeated[0]!r}.")
    columns = Columns.resolve(column_map, header)
    if "audio_filepath" not in columns.names:
        raise ConfigurationError(
            f"{file.path}: no column audio_filepath; its columns are {', '.join(header)}. Name the "
            "one that holds the path with column_map, e.g. column_map.audio_filepath="
            f"{header[0]}."
        )
    builder = RowBuilder(file.path, audio_root or file.path.parent, columns)
    for number, cells in lines:
        if isinstance(cells, str):
            builder.problem(number, cells)
        elif len(cells) != len(header):
            builder.problem(number, f"{len(cells)} cells, the header has {len(header)}")
        else:
            builder.add(number, dict(zip(header, cells, strict=True)))
    rows, problems = builder.finish()
    return Manifest(tuple(rows), file.digest, file.path, kind, tuple(problems))
