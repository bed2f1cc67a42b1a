"""Rewrite a corpus: any source to one manifest, on request with audio cut, mixed and resampled."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from voicehub.errors import DataError
from voicehub_data.audio import load_audio
from voicehub_data.manifest.rows import ManifestRow
from voicehub_data.parallel import map_parallel

AudioFormat = Literal["flac", "wav"]


@dataclass(frozen=True, slots=True)
class ConvertedAudio:
    """Rows that point at the written files, and how many of these had samples beyond full scale."""

    rows: list[ManifestRow]
    clipped_files: int


def convert_audio(
    rows: Sequence[ManifestRow],
    directory: Path,
    *,
    sample_rate: int | None,
    audio_format: AudioFormat = "flac",
    workers: int = 0,
    overwrite: bool = False,
) -> ConvertedAudio:
    """Write one mono 16-bit file a row, named by its id; segments become files of their own.

    Args:
        rows: what to write.
        directory: created where needed.
        sample_rate: Hz; None keeps each file's own.
        audio_format: ``flac`` or ``wav``.
        workers: threads.
        overwrite: replace files that exist.

    Returns:
        Rows with the new paths, offset 0 and exact durations.

    Raises:
        DataError: files exist, cannot be written, or rows cannot be decoded (all are counted, the
            first five named). Files written before are kept; the caller writes no manifest.
    """
    targets = _targets(rows, directory, audio_format)
    existing = [path for path in targets if path.exists()]
    if existing and not overwrite:
        raise DataError(
            f"{directory}: {len(existing)} of the files to write exist, e.g. {existing[0].name}; "
            "choose another folder or allow overwriting."
        )
    jobs = list(zip(rows, targets, strict=True))
    results = list(map_parallel(partial(_convert, sample_rate), jobs, workers=workers))
    failures = [result for result in results if isinstance(result, str)]
    if failures:
        shown = "\n".join(f"  {failure}" for failure in failures[:5])
        more = f"\n  ... and {len(failures) - 5} more" if len(failures) > 5 else ""
        raise DataError(f"{len(failures)} of {len(rows)} rows cannot be converted:\n{shown}{more}")
    done = [result for result in results if not isinstance(result, str)]
    return ConvertedAudio([row for row, _ in done], sum(clipped for _, clipped in done))


def _convert(
    sample_rate: int | None, job: tuple[ManifestRow, Path]
) -> tuple[ManifestRow, bool] | str:
    """One row; a message where it fails."""
    import soundfile

    row, target = job
    try:
        rate = sample_rate or soundfile.info(row.audio_filepath).samplerate
        audio = load_audio(
            row.audio_filepath, sample_rate=rate, offset=row.offset, duration=row.duration
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        kind = target.suffix[1:].upper()
        soundfile.write(temporary, audio.clip(-1.0, 1.0), rate, format=kind, subtype="PCM_16")
        temporary.replace(target)
    except (DataError, OSError, soundfile.SoundFileError) as error:
        return f"{row.location}: {error}"
    converted = replace(
        row,
        audio_filepath=target,
        offset=0.0,
        is_segment=False,
        duration=len(audio) / rate,
    )
    return converted, bool(np.abs(audio).max() > 1.0)


def _targets(rows: Sequence[ManifestRow], directory: Path, suffix: str) -> list[Path]:
    """A file name for every row, unique also where ids differ only in odd characters."""
    directory = directory.absolute()
    names: dict[str, str] = {}
    targets = []
    for row in rows:
        name = _safe_name(row.id)
        if names.setdefault(name.lower(), row.id) != row.id:
            name = f"{name}-{hashlib.sha256(row.id.encode()).hexdigest()[:10]}"
        targets.append(directory / f"{name}.{suffix}")
    return targets


def _safe_name(identity: str) -> str:
    """An id as a relative path: no parent folders, no absolute start, plain characters."""
    parts = [re.sub(r"[^\w.@#+-]", "_", part) for part in identity.split("/")]
    return "/".join(part for part in parts if part.strip(".")) or "row"
