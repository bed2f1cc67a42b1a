"""Kaldi data directories: ``wav.scp``, ``text``, ``segments``, ``utt2spk`` and optional tables.

Commands in ``wav.scp`` (entries that end in ``|``) are never run: a manifest must not execute code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.manifest.lines import read_text_file
from voicehub_data.manifest.records import Columns, RecordError, RowBuilder, float_or_none, seconds
from voicehub_data.manifest.rows import Manifest, RowProblem

# Optional per-utterance tables: file name -> field of a row.
_TABLES = {"text": "text", "utt2spk": "speaker", "utt2lang": "language", "utt2dur": "duration"}
_FIELDS = ("audio_filepath", "text", "duration", "offset", "speaker", "language", "id")


@dataclass(slots=True)
class _Directory:
    """The tables of a directory; remembers digests and problems as files are read."""

    path: Path
    digest: Any = field(default_factory=hashlib.sha256)
    problems: list[RowProblem] = field(default_factory=list)

    def table(self, name: str) -> dict[str, tuple[int, str]]:
        """Key -> (line number, rest of the line)."""
        path = self.path / name
        file = read_text_file(path)
        self.digest.update(f"{name} {file.digest}\n".encode())
        entries: dict[str, tuple[int, str]] = {}
        for line in file.lines():
            if line.text is None:
                self.problem(name, line.number, line.error)
                continue
            key, _, value = line.text.strip().partition(" ")
            if "\t" in key:
                key, _, value = line.text.strip().partition("\t")
            if key in entries:
                message = f"{key!r} is listed twice, first on line {entries[key][0]}"
                self.problem(name, line.number, message)
            else:
                entries[key] = (line.number, value.strip())
        return entries

    def optional(self, name: str) -> dict[str, tuple[int, str]]:
        return self.table(name) if (self.path / name).exists() else {}

    def problem(self, name: str, number: int, message: str) -> None:
        self.problems.append(RowProblem(self.path / name, number, message))


def read_kaldi(
    path: Path, *, audio_root: Path | None = None, column_map: Mapping[str, str] | None = None
) -> Manifest:
    """Read a Kaldi data directory; rows follow ``segments``, or ``wav.scp`` where there is none.

    Relative audio paths start at ``audio_root``, by default the data directory (Kaldi itself
    starts them where the recipe runs: give that folder as ``audio_root``).

    Raises:
        DataError: ``path`` or its ``wav.scp`` is missing.
        ConfigurationError: a column map is given; this format has no column names.
    """
    if column_map:
        raise ConfigurationError(f"{path}: column_map does not apply to kind=kaldi.")
    if not path.is_dir():
        raise DataError(f"{path}: expected a Kaldi data directory with a file wav.scp.")
    directory = _Directory(path)
    recordings = _recordings(directory)
    tables = {target: directory.optional(name) for name, target in _TABLES.items()}
    columns = Columns({name: name for name in _FIELDS})
    if (path / "segments").exists():
        source, utterances = "segments", _segments(directory, recordings)
    else:
        source, utterances = (
            "wav.scp",
            {
                key: (number, {"audio_filepath": written})
                for key, (number, written) in recordings.items()
            },
        )
    builder = RowBuilder(path / source, audio_root or path, columns)
    for key, (number, record) in utterances.items():
        values = {name: table[key][1] for name, table in tables.items() if key in table}
        builder.add(number, {"id": key, **values, **record})
    _report_strangers(directory, set(utterances))
    rows, problems = builder.finish()
    return Manifest(
        tuple(rows),
        directory.digest.hexdigest(),
        path,
        "kaldi",
        (*directory.problems, *problems),
    )


def _recordings(directory: _Directory) -> dict[str, tuple[int, str]]:
    recordings = {}
    for key, (number, value) in directory.table("wav.scp").items():
        if value.endswith("|") or value.startswith("|"):
            directory.problem(
                "wav.scp",
                number,
                f"{key!r} is a command ({value[:60]!r}); commands are never run. Decode the "
                "recording to a file (e.g. copy the pipe's output to .wav) and list its path",
            )
        elif value.rpartition(":")[2].isdigit() and ".ark:" in value:
            directory.problem(
                "wav.scp", number, f"{key!r} points into an archive ({value!r}); list audio files"
            )
        elif not value:
            directory.problem("wav.scp", number, f"{key!r} has no path")
        else:
            recordings[key] = (number, value)
    return recordings


def _segments(
    directory: _Directory, recordings: Mapping[str, tuple[int, str]]
) -> dict[str, tuple[int, dict[str, Any]]]:
    """Utterance -> (line, record) from ``utt recording start end``; an end of -1 is the file's."""
    utterances: dict[str, tuple[int, dict[str, Any]]] = {}
    listed = {problem.row for problem in directory.problems if problem.source.name == "wav.scp"}
    for key, (number, value) in directory.table("segments").items():
        parts = value.split()
        try:
            if len(parts) not in (3, 4):
                raise RecordError(f"expected 'utt recording start end', got {key + ' ' + value!r}")
            recording, start, end = parts[0], parts[1], parts[2]
            if recording not in recordings:
                cause = " (see the problems of wav.scp)" if listed else ""
                raise RecordError(f"recording {recording!r} is not in wav.scp{cause}")
            offset = seconds(start, "start", minimum=0.0) or 0.0
            record: dict[str, Any] = {
                "audio_filepath": recordings[recording][1],
                "offset": offset,
            }
            if float_or_none(end) != -1.0:
                stop = seconds(end, "end", minimum=0.0) or 0.0
                if stop <= offset:
                    raise RecordError(f"ends at {stop:g} s, at or before its start {offset:g} s")
                record["duration"] = round(stop - offset, 9)
            utterances[key] = (number, record)
        except RecordError as error:
            directory.problem("segments", number, str(error))
    return utterances


def _report_strangers(directory: _Directory, known: set[str]) -> None:
    """Transcripts without audio are problems: a part of the corpus would be lost unseen."""
    failed = bool(directory.problems)
    for key, (number, _) in directory.optional("text").items():
        if key not in known:
            cause = " (its audio has a problem above)" if failed else ""
            message = f"utterance {key!r} has a transcript but no audio{cause}"
            directory.problem("text", number, message)
