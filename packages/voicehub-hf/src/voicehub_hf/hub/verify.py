"""Whether a directory holds a whole checkpoint: configuration, and weights in safetensors."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from voicehub.models.artifact import is_artifact

_CONFIG = "config.json"
_INDEX = ".safetensors.index.json"
_HEADER_LIMIT = 100 << 20  # bytes; what the format allows


def checkpoint_files(directory: Path) -> dict[str, int]:
    """Sizes in bytes of all files of a checkpoint by relative name."""
    return {
        path.relative_to(directory).as_posix(): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.parts[-2:])
    }


def problems_of(directory: Path) -> list[str]:
    """What keeps a directory from being loaded; empty for a whole checkpoint.

    Weights are checked against their own headers, so that a download that was cut short shows;
    they are not hashed.
    """
    if not (directory / _CONFIG).is_file():
        return [f"{_CONFIG} is missing"]
    found = sorted(directory.rglob("*.safetensors") if is_artifact(directory) else [])
    found = found or sorted(directory.glob("*.safetensors"))
    problems = [problem for path in found if (problem := _damage(path)) is not None]
    listed = sorted(directory.glob(f"*{_INDEX}"))
    shards = {name for path in listed for name in _shards(path)}
    missing = sorted(name for name in shards if not (directory / name).is_file())
    problems += [f"{name}, which the index lists, is missing" for name in missing]
    if not found and not shards:
        problems.append("there are no weights in safetensors (other formats are not read)")
    return problems


def _shards(index: Path) -> set[str]:
    try:
        document = json.loads(index.read_text(encoding="utf-8"))
        return {str(name) for name in document["weight_map"].values()}
    except (OSError, ValueError, KeyError, AttributeError):
        return {f"(the unreadable index {index.name})"}


def _damage(path: Path) -> str | None:
    """What is wrong with a safetensors file, by its header and size."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, _HEADER_LIMIT):
                return f"{path.name} is damaged: its header would be {length} bytes long"
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name[:2] != "__"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        return f"{path.name} is damaged: its header cannot be read ({type(error).__name__})"
    expected = 8 + length + max(ends, default=0)
    return None if size == expected else f"{path.name} has {size} bytes, {expected} were expected"
