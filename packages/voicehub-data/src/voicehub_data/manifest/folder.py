"""A folder of audio files, with transcripts in text files beside them where there are any."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.audio import AUDIO_SUFFIXES
from voicehub_data.manifest.records import Columns, RowBuilder
from voicehub_data.manifest.rows import Manifest

_TRANSCRIPT_SUFFIXES = (".txt", ".lab")


def read_folder(
    path: Path, *, audio_root: Path | None = None, column_map: Mapping[str, str] | None = None
) -> Manifest:
    """Take every audio file below a folder, sorted by path; ids are paths without suffix.

    ``a/b.txt`` or ``a/b.lab`` beside ``a/b.wav`` is its transcript, white space collapsed. The
    digest covers paths, sizes and transcripts, not samples.

    Raises:
        DataError: the folder holds no audio.
        ConfigurationError: settings are given that do not apply.
    """
    if column_map or audio_root:
        raise ConfigurationError(f"{path}: column_map and audio_root do not apply to kind=folder.")
    if not path.is_dir():
        raise DataError(f"{path}: expected a folder of audio files.")
    files = sorted(
        (
            file
            for file in path.rglob("*")
            if file.suffix.lower() in AUDIO_SUFFIXES and file.is_file()
        ),
        key=lambda file: file.relative_to(path).as_posix(),
    )
    if not files:
        suffixes = ", ".join(sorted(AUDIO_SUFFIXES))
        raise DataError(f"{path}: no audio files ({suffixes}) in this folder or below it.")
    digest = hashlib.sha256()
    columns = Columns({"audio_filepath": "audio_filepath", "text": "text"})
    builder = RowBuilder(path, path, columns)
    for number, file in enumerate(files, start=1):
        name = file.relative_to(path).as_posix()
        try:
            text = _transcript(file)
        except (OSError, UnicodeDecodeError) as error:
            builder.problem(number, f"the transcript of {name} cannot be read ({error})")
            continue
        builder.add(number, {"audio_filepath": name, "text": text})
        line = f"{name}\0{file.stat().st_size}\0{text}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    rows, problems = builder.finish()
    return Manifest(tuple(rows), digest.hexdigest(), path, "folder", tuple(problems))


def _transcript(audio: Path) -> str:
    for suffix in _TRANSCRIPT_SUFFIXES:
        sidecar = audio.with_suffix(suffix)
        if sidecar.is_file():
            return " ".join(sidecar.read_text(encoding="utf-8-sig").split())
    return ""
