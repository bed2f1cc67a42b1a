"""Sent to the host: finds the newest checkpoint of a run that is whole. Runs where voicehub is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

_STAGE = re.compile(r"([0-9]+)-.+")


def main(request: Mapping[str, str]) -> None:
    """Print one line of JSON; ``request["folder"]`` is the run's directory.

    It tells ``checkpoint``, ``step`` and ``bytes`` of the newest one that
    ``voicehub checkpoint verify`` accepts, and ``damaged``, newer ones with the reason.
    """
    from voicehub.checkpoints.layout import checkpoint_step
    from voicehub.checkpoints.manifest import read_manifest, verify_files
    from voicehub.errors import CheckpointError

    folder, damaged = Path(request["folder"]), []
    found: dict[str, object] = {"checkpoint": None, "step": None, "bytes": 0}
    for path in _newest_first(folder):
        name = path.relative_to(folder).as_posix()
        try:
            manifest = read_manifest(path)
            verify_files(path, manifest)
        except CheckpointError as error:
            damaged.append({"checkpoint": name, "reason": str(error)})
            continue
        size = sum(entry["size"] for entry in manifest["file_integrity"].values())
        found = {"checkpoint": name, "step": checkpoint_step(path), "bytes": size}
        break
    print(json.dumps({"exists": folder.is_dir(), **found, "damaged": damaged}))


def _newest_first(folder: Path) -> list[Path]:
    """Checkpoints of the run; of a chain, those of its later stages first."""
    from voicehub.checkpoints.layout import list_checkpoints

    stages: list[tuple[int, Path]] = [(-1, folder)]
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _STAGE.fullmatch(path.name)
        if match and path.is_dir():
            stages.append((int(match[1]), path))
    newest: list[Path] = []
    for _, stage in sorted(stages, reverse=True):
        newest += reversed(list_checkpoints(stage))
    return newest
