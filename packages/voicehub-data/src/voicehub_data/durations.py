"""Durations from audio headers, for sources that do not state them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from voicehub.errors import DataError
from voicehub_data.audio import AudioInfo, audio_info
from voicehub_data.manifest.rows import Manifest, ManifestRow
from voicehub_data.parallel import map_parallel


def fill_durations(manifest: Manifest, *, workers: int = 0) -> Manifest:
    """Read headers (each file once) and fill in the durations that are missing.

    Args:
        manifest: rows; those that have a duration are left as they are.
        workers: threads; 0 reads in the calling thread.

    Raises:
        DataError: headers that cannot be read, all of them listed (the first five in full).
    """
    missing = [row for row in manifest.rows if row.duration is None]
    if not missing:
        return manifest
    paths = list(dict.fromkeys(row.audio_filepath for row in missing))
    infos = dict(zip(paths, map_parallel(_info_or_error, paths, workers=workers), strict=True))
    failures: list[str] = []
    rows = [
        row if row.duration is not None else _filled(row, infos[row.audio_filepath], failures)
        for row in manifest.rows
    ]
    _raise_failures(manifest.path, failures)
    return manifest.with_rows(rows)


def _info_or_error(path: Path) -> AudioInfo | str:
    try:
        return audio_info(path)
    except DataError as error:
        return str(error)


def _filled(row: ManifestRow, info: AudioInfo | str, failures: list[str]) -> ManifestRow:
    if isinstance(info, str):
        failures.append(f"row {row.row}: {info}")
        return row
    if info.frames < 0:
        failures.append(f"row {row.row}: {row.audio_filepath}: the header states no length")
        return row
    if info.frames == 0:
        failures.append(f"row {row.row}: {row.audio_filepath}: holds no samples")
        return row
    remaining = info.duration - row.offset
    if remaining <= 0:
        failures.append(
            f"row {row.row}: offset {row.offset:g} s lies at or past the end of "
            f"{row.audio_filepath} ({info.duration:.3f} s)"
        )
        return row
    return replace(row, duration=remaining)


def _raise_failures(path: Path, failures: Sequence[str]) -> None:
    if failures:
        shown = "\n".join(f"  {failure}" for failure in failures[:5])
        more = f"\n  ... and {len(failures) - 5} more" if len(failures) > 5 else ""
        raise DataError(f"{path}: {len(failures)} durations cannot be read:\n{shown}{more}")
