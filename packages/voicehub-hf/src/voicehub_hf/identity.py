"""Which checkpoint a run starts from, exactly."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

_BLOCK = 1 << 20


def checkpoint_identity(source: str, config: Any) -> dict[str, Any]:
    """Return what a run's record keeps of a checkpoint.

    Args:
        source: local directory or Hub id.
        config: its transformers config.

    Returns:
        ``source``, and ``commit`` of a Hub checkpoint or ``files``, SHA-256 (hex) by name, of a
        local one's configuration and weights.
    """
    directory = Path(source)
    if not directory.is_dir():
        return {"source": source, "commit": getattr(config, "_commit_hash", None)}
    names = sorted([*directory.glob("*.json"), *directory.glob("*.safetensors")])
    return {"source": source, "files": {path.name: _digest(path) for path in names}}


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
