"""What an extraction is, and what of it is done already."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from voicehub.errors import DataError
from voicehub_data.files import write_file
from voicehub_data.manifest import ManifestRow
from voicehub_data.manifest.rows import rows_digest
from voicehub_flow.features.base import Kind
from voicehub_flow.features.clips import FPS_COLUMN, VIDEO_COLUMN
from voicehub_flow.features.settings import ExtractionSettings, ExtractorChoice
from voicehub_flow.store.index import SHARDS
from voicehub_flow.store.writer import ShardRecord, read_shard, shard_name

JOB_FILE = "job.json"
EXTRACTORS = "extractors"


def job_identity(
    rows: Sequence[ManifestRow],
    chosen: Mapping[Kind, ExtractorChoice],
    settings: ExtractionSettings,
) -> dict[str, Any]:
    """What must be equal for two extractions to give equal stores."""
    videos = hashlib.sha256(
        "".join(
            f"{row.extra.get(VIDEO_COLUMN)} {row.extra.get(FPS_COLUMN)}\n" for row in rows
        ).encode()
    )
    return {
        "rows": len(rows),
        "rows_sha256": rows_digest(rows),
        "videos_sha256": videos.hexdigest(),
        "settings": settings.model_dump(mode="json"),
        "extractors": {kind: choice.to_json() for kind, choice in chosen.items()},
    }


class ShardedJob:
    """Shards that are done, below the store's directory.

    Args:
        store: the store.
        identity: of the job.
    """

    def __init__(self, store: Path, identity: Mapping[str, Any]) -> None:
        self.store, self.identity = store, dict(identity)

    def open(self, *, restart: bool) -> None:
        """Begin, or go on where the same job was interrupted.

        Raises:
            DataError: the directory holds the work of another job.
        """
        if restart:
            for name in (SHARDS, EXTRACTORS):
                shutil.rmtree(self.store / name, ignore_errors=True)
            (self.store / JOB_FILE).unlink(missing_ok=True)
        path = self.store / JOB_FILE
        if not path.is_file():
            if (self.store / SHARDS).exists():
                raise DataError(
                    f"{self.store}: holds shards of an extraction whose {JOB_FILE} is missing. "
                    "Choose another directory, or discard them with --restart."
                )
            write_file(path, (json.dumps(self.identity, indent=2) + "\n").encode())
            return
        there = self._there(path)
        other = [key for key, value in self.identity.items() if there.get(key) != value]
        if other:
            raise DataError(
                f"{self.store}: holds the work of another extraction (other {', '.join(other)}). "
                "Choose another directory, or discard it with --restart."
            )

    def done(self, number: int) -> ShardRecord | None:
        """What a finished shard says of itself; None where it is still to be made."""
        try:
            return read_shard(self.store / shard_name(number))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _there(self, path: Path) -> dict[str, Any]:
        try:
            there = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            there = None
        if not isinstance(there, dict):
            raise DataError(
                f"{path}: damaged, so that nobody can tell what the shards are of. Discard them "
                "with --restart."
            )
        return there
