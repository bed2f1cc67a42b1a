"""LJSpeech: ``metadata.csv`` with ``id|text as printed|text as spoken``, audio in ``wavs/``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.audio import AUDIO_SUFFIXES
from voicehub_data.manifest.lines import read_text_file
from voicehub_data.manifest.records import Columns, RowBuilder
from voicehub_data.manifest.rows import Manifest
from voicehub_data.manifest.tables import split_lines

_AUDIO_FOLDERS = ("wavs", "audio")


def read_ljspeech(
    path: Path, *, audio_root: Path | None = None, column_map: Mapping[str, str] | None = None
) -> Manifest:
    """Read an LJSpeech-style corpus from its directory or its ``metadata.csv``.

    The text is the last column; where there are three, the printed one is kept in
    ``extra["raw_text"]``. Audio is ``wavs/<id>`` with any supported suffix.

    Raises:
        DataError: no metadata file, or no folder of audio.
        ConfigurationError: a column map is given; this format has no column names.
    """
    if column_map:
        raise ConfigurationError(f"{path}: column_map does not apply to kind=ljspeech.")
    metadata = path / "metadata.csv" if path.is_dir() else path
    file = read_text_file(metadata)
    folder = audio_root or _audio_folder(metadata.parent)
    names = ("audio_filepath", "id", "text")
    builder = RowBuilder(metadata, folder, Columns({name: name for name in names}))
    suffixes = _suffix_by_stem(folder)
    for number, cells in split_lines(file, "|"):
        if isinstance(cells, str):
            builder.problem(number, cells)
            continue
        if len(cells) not in (2, 3):
            builder.problem(number, f"{len(cells)} fields between '|', expected id|text[|spoken]")
            continue
        identity = cells[0].strip()
        record: dict[str, Any] = {
            # A file that is not there keeps the standard name, which the check then reports.
            "audio_filepath": identity + suffixes.get(identity, ".wav") if identity else "",
            "id": identity,
            "text": cells[-1],
        }
        if len(cells) == 3:
            record["raw_text"] = cells[1]
        builder.add(number, record)
    rows, problems = builder.finish()
    return Manifest(tuple(rows), file.digest, metadata, "ljspeech", tuple(problems))


def _audio_folder(root: Path) -> Path:
    folder = next((root / name for name in _AUDIO_FOLDERS if (root / name).is_dir()), None)
    if folder is None:
        raise DataError(f"{root}: no folder {' or '.join(_AUDIO_FOLDERS)}; set audio_root.")
    return folder


def _suffix_by_stem(folder: Path) -> dict[str, str]:
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror or error}).") from error
    paths = (Path(name) for name in names)
    return {path.stem: path.suffix for path in paths if path.suffix.lower() in AUDIO_SUFFIXES}
