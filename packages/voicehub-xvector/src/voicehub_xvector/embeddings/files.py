"""Write and read sets of embeddings: ``ark,csv``, ``ark,scp``, ``npz``, ``parquet``."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from voicehub.errors import ConfigurationError, DataError, OptionalDependencyError
from voicehub.suggest import did_you_mean
from voicehub_data.files import write_file
from voicehub_xvector.embeddings.kaldi_ark import ArkReader, write_ark
from voicehub_xvector.embeddings.table import EmbeddingTable

FORMATS = ("ark,csv", "ark,scp", "npz", "parquet")
_CSV_COLUMNS = ("id", "storage_path", "storage_byte", "duration", "speaker", "audio_filepath")


def check_format(name: str) -> None:
    """Raise where a format is unknown or needs a package that is not installed.

    Raises:
        ConfigurationError: unknown.
        OptionalDependencyError: parquet without pyarrow.
    """
    if name not in FORMATS:
        raise ConfigurationError(
            f"There is no format {name!r}.{did_you_mean(name, FORMATS)} There are: "
            f"{'; '.join(FORMATS)}."
        )
    if name == "parquet" and find_spec("pyarrow") is None:
        raise OptionalDependencyError(
            "parquet needs pyarrow, which is not installed: "
            "pip install 'voicehub-xvector[parquet]'."
        )


def write_embeddings(table: EmbeddingTable, directory: Path, format_: str) -> list[Path]:
    """Write ``embeddings.*`` into a directory, each file in one step; return what was written.

    * ``ark,csv``: a Kaldi archive of float vectors and a table with the columns id, storage_path
      (relative to the table), storage_byte, duration, speaker, audio_filepath;
    * ``ark,scp``: the archive, ``id path:byte`` with absolute paths, and ``embeddings.utt2dur``;
    * ``npz``: arrays ids, embeddings, durations, speakers, audio_filepaths;
    * ``parquet``: columns of the same names in the singular, embedding a list of floats.

    Raises:
        ConfigurationError, OptionalDependencyError: as :func:`check_format`.
        DataError: an id that a Kaldi archive cannot hold, or a file cannot be written.
    """
    check_format(format_)
    if format_ == "npz":
        return [_written(directory / "embeddings.npz", _npz(table))]
    if format_ == "parquet":
        return [_written(directory / "embeddings.parquet", _parquet(table))]
    buffer = io.BytesIO()
    offsets = write_ark(buffer, zip(table.ids, table.vectors, strict=True))
    ark = _written(directory / "embeddings.ark", buffer.getvalue())
    if format_ == "ark,csv":
        return [ark, _written(directory / "embeddings.csv", _csv(table, offsets))]
    place = ark.absolute()
    if str(place).split() != [str(place)]:
        raise DataError(f"{place}: a .scp cannot name a path with white space; use ark,csv.")
    pointers = "".join(f"{key} {place}:{n}\n" for key, n in zip(table.ids, offsets, strict=True))
    known = [(key, d) for key, d in zip(table.ids, table.durations, strict=True) if d == d]
    durations = "".join(f"{key} {duration:.9g}\n" for key, duration in known)
    return [
        ark,
        _written(directory / "embeddings.scp", pointers.encode()),
        _written(directory / "embeddings.utt2dur", durations.encode()),
    ]


def _written(path: Path, content: bytes) -> Path:
    write_file(path, content)
    return path


def _csv(table: EmbeddingTable, offsets: list[int]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    columns = (table.durations, table.speakers, table.audio_filepaths)
    for key, offset, duration, *rest in zip(table.ids, offsets, *columns, strict=True):
        seconds = f"{duration:.9g}" if duration == duration else ""
        writer.writerow([key, "embeddings.ark", offset, seconds, *rest])
    return text.getvalue().encode()


def _npz(table: EmbeddingTable) -> bytes:
    buffer = io.BytesIO()
    np.savez(
        buffer,
        ids=np.array(table.ids, dtype=str),
        embeddings=table.vectors,
        durations=table.durations,
        speakers=np.array(table.speakers, dtype=str),
        audio_filepaths=np.array(table.audio_filepaths, dtype=str),
    )
    return buffer.getvalue()


def _parquet(table: EmbeddingTable) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    size = table.vectors.shape[1]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(table.vectors.ravel()), size)
    durations = pa.array(table.durations, from_pandas=True)  # NaN is null
    columns = {
        "id": pa.array(table.ids, pa.string()),
        "embedding": vectors,
        "duration": durations,
        "speaker": pa.array(table.speakers, pa.string()),
        "audio_filepath": pa.array(table.audio_filepaths, pa.string()),
    }
    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


# -- reading ---------------------------------------------------------------------------------


def read_embeddings(path: str | Path) -> EmbeddingTable:
    """Read a file of embeddings, or the one that lies in a directory.

    Args:
        path: ``.csv`` (beside its archive), ``.scp``, ``.npz``, ``.parquet``, or a directory that
            ``voicehub extract`` wrote.

    Raises:
        DataError: nothing to read there, or damage, with file and row.
    """
    path = Path(path)
    if path.is_dir():
        path = _in_directory(path)
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise DataError(
            f"{path}: expected a file of embeddings ({', '.join(_READERS)}) or a directory that "
            "`voicehub extract` wrote."
        )
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    return reader(path)


def _in_directory(directory: Path) -> Path:
    found = [directory / f"embeddings{suffix}" for suffix in _READERS]
    found = [path for path in found if path.is_file()]
    if len(found) != 1:
        what = ", ".join(path.name for path in found) or "none"
        raise DataError(f"{directory}: expected one file of embeddings, found {what}.")
    return found[0]


def _read_csv(path: Path) -> EmbeddingTable:
    reader = csv.DictReader(io.StringIO(_text(path), newline=""))
    try:
        missing = set(_CSV_COLUMNS[:3]) - set(reader.fieldnames or ())
        if missing:
            raise DataError(f"{path}: no column {', '.join(sorted(missing))} in its first row.")
        rows = list(reader)
    except csv.Error as error:
        raise DataError(f"{path}, row {reader.line_num}: {error}.") from error
    pointers = [(row["id"], row["storage_path"], row["storage_byte"]) for row in rows]
    durations = [_number(row.get("duration"), path, n) for n, row in enumerate(rows, 2)]
    return EmbeddingTable.of(
        (row["id"] for row in rows),
        _vectors(pointers, path, first_row=2),
        durations=durations,
        speakers=[row.get("speaker") or "" for row in rows],
        audio_filepaths=[row.get("audio_filepath") or "" for row in rows],
        source=path,
    )


def _read_scp(path: Path) -> EmbeddingTable:
    pointers = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        key, _, pointer = line.strip().partition(" ")
        place, colon, offset = pointer.strip().rpartition(":")
        if not (key and colon and place):
            raise DataError(f"{path}, row {number}: expected 'id archive.ark:byte', got {line!r}.")
        pointers.append((key, place, offset))
    beside = path.with_suffix(".utt2dur")
    known: dict[str, float] = {}
    if beside.is_file():
        for number, line in enumerate(_text(beside).splitlines(), 1):
            key, _, value = line.partition(" ")
            known[key] = _number(value, beside, number)
    return EmbeddingTable.of(
        (key for key, _, _ in pointers),
        _vectors(pointers, path, first_row=1),
        durations=[known.get(key, np.nan) for key, _, _ in pointers],
        source=path,
    )


def _vectors(pointers: list[tuple[str, str, str]], path: Path, first_row: int) -> Any:
    if not pointers:
        raise DataError(f"{path}: holds no embedding.")
    rows = []
    with closing(ArkReader(path.parent)) as archives:
        for number, (_, place, offset) in enumerate(pointers, first_row):
            where = f"{path}, row {number}"
            if not offset.isdigit():
                raise DataError(f"{where}: expected a position in bytes, got {offset!r}.")
            rows.append(archives.read(place, int(offset), where))
            if len(rows[-1]) != len(rows[0]):
                raise DataError(
                    f"{where}: an embedding of {len(rows[-1])} values among others of "
                    f"{len(rows[0])}."
                )
    return np.stack(rows)


def _text(path: Path) -> str:
    """A whole file; a mark of byte order at its start, as spreadsheets write it, is taken off."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text, from byte {error.start} on.") from error


def _number(text: str | None, path: Path, row: int) -> float:
    try:
        return float(text) if text else float("nan")
    except ValueError:
        raise DataError(f"{path}, row {row}: expected seconds, got {text!r}.") from None


def _read_npz(path: Path) -> EmbeddingTable:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            held = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise DataError(f"{path}: not a readable .npz file ({error}).") from error
    if not {"ids", "embeddings"} <= held.keys():
        raise DataError(f"{path}: needs arrays 'ids' and 'embeddings', holds {sorted(held)}.")
    return EmbeddingTable.of(
        held["ids"],
        held["embeddings"],
        durations=held.get("durations"),
        speakers=held.get("speakers"),
        audio_filepaths=held.get("audio_filepaths"),
        source=path,
    )


def _read_parquet(path: Path) -> EmbeddingTable:
    check_format("parquet")
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise DataError(f"{path}: not a readable parquet file ({error}).") from error
    if not {"id", "embedding"} <= set(table.column_names):
        raise DataError(f"{path}: needs columns 'id' and 'embedding', has {table.column_names}.")

    def column(name: str) -> list[Any] | None:
        return table[name].to_pylist() if name in table.column_names else None

    durations = column("duration")
    return EmbeddingTable.of(
        table["id"].to_pylist(),
        np.asarray(table["embedding"].to_pylist(), dtype=np.float32).reshape(table.num_rows, -1),
        durations=durations and [np.nan if d is None else d for d in durations],
        speakers=[name or "" for name in column("speaker") or table.num_rows * [""]],
        audio_filepaths=[name or "" for name in column("audio_filepath") or table.num_rows * [""]],
        source=path,
    )


_READERS: dict[str, Callable[[Path], EmbeddingTable]] = {
    ".csv": _read_csv,
    ".scp": _read_scp,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}
