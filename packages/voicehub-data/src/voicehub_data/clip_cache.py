"""What was made of clips, kept on disk by the hash of all that it was made of."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from voicehub_data.manifest.rows import ManifestRow

_BLOCK = 1 << 20


class ClipCache:
    """Tensors of manifest rows, a file a clip.

    A renamed audio file is found again; one whose content has changed is not. What is damaged is
    made again, and several processes may write at once.

    Args:
        directory: made where missing; None keeps nothing.
    """

    def __init__(self, directory: str | Path | None) -> None:
        self.directory = None if directory is None else Path(directory).expanduser()

    def get(
        self,
        row: ManifestRow,
        settings: Mapping[str, Any],
        make: Callable[[], Mapping[str, Tensor]],
    ) -> Mapping[str, Tensor]:
        """Return the tensors of a row by name; they are made where they are not kept.

        Args:
            row: the clip.
            settings: JSON that changes when the tensors would.
            make: makes them.
        """
        if self.directory is None:
            return make()
        path = self.directory / f"{clip_key(row, settings)}.safetensors"
        kept = _read(path)
        if kept is None:
            kept = make()
            _write(path, kept)
        return kept


def clip_key(row: ManifestRow, settings: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of the file's content, the segment and the settings."""
    digest = hashlib.sha256()
    with row.audio_filepath.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    segment = (row.offset, row.duration)
    digest.update(json.dumps([segment, settings], sort_keys=True).encode())
    return digest.hexdigest()


def _read(path: Path) -> Mapping[str, Tensor] | None:
    """Tensors of a file; None where it is absent or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (FileNotFoundError, SafetensorError):
        return None


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """In one step: workers may write the same clip at once."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    save_file({name: value.contiguous() for name, value in tensors.items()}, temporary)
    temporary.replace(path)
