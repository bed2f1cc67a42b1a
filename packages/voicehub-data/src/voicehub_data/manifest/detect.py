"""Tell a source's format from what lies at its path."""

from __future__ import annotations

from pathlib import Path

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.audio import AUDIO_SUFFIXES

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "datasets",
    ".arrow": "datasets",
}


def detect_kind(path: Path) -> str:
    """Format of the source at ``path``; only the first line of a table is read.

    Raises:
        DataError: nothing is there.
        ConfigurationError: what is there cannot be told; the message lists the kinds.
    """
    if path.is_dir():
        return _detect_directory(path)
    if not path.exists():
        hint = ""
        if len(path.parts) == 2 and not path.suffix and not path.is_absolute():
            hint = " If it is the id of a data set on the Hub, set kind=datasets."
        raise DataError(f"{path}: no such file or directory.{hint}")
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind == "csv" and _first_line(path).count("|") > _first_line(path).count(","):
        return "ljspeech"
    if kind == "tsv" and {"client_id", "path", "sentence"} <= set(_first_line(path).split("\t")):
        return "commonvoice"
    if kind is not None:
        return kind
    if path.suffix.lower() in AUDIO_SUFFIXES:
        raise ConfigurationError(
            f"{path}: this is an audio file; give a manifest or the folder that holds it."
        )
    raise ConfigurationError(
        f"{path}: cannot tell the format from the name. Set kind to one of jsonl, csv, tsv, "
        "ljspeech, commonvoice, kaldi, folder, datasets."
    )


def _detect_directory(path: Path) -> str:
    if (path / "wav.scp").exists():
        return "kaldi"
    if (path / "metadata.csv").exists():
        return "ljspeech"
    if (path / "dataset_dict.json").exists() or (path / "dataset_info.json").exists():
        return "datasets"
    if any(path.glob("*.parquet")) or any(path.glob("data/*.parquet")):
        return "datasets"
    return "folder"


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        return file.readline(65536).decode("utf-8-sig", "replace").rstrip("\r\n")
