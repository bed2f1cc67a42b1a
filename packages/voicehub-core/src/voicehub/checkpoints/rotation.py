"""Keeping the number of checkpoints within a limit."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path

from voicehub.checkpoints.layout import MANIFEST_FILE, list_checkpoints
from voicehub.checkpoints.litter import discard_checkpoint
from voicehub.checkpoints.strict_json import parse_json

logger = logging.getLogger(__name__)


def rotate(
    run_dir: str | os.PathLike[str],
    run_id: str,
    limit: int | None,
    protect: Collection[str | os.PathLike[str]] = (),
) -> list[Path]:
    """Delete the oldest checkpoints of a run beyond ``limit`` and return their paths.

    Only complete checkpoints whose manifest carries ``run_id`` are counted or touched. The newest
    and those in ``protect`` (names or paths; the best one, the one just written) always stay, so
    that more than ``limit`` may remain. Call it after the new checkpoint is complete. One that
    cannot be deleted stays, with a warning: the training has no reason to end for that.

    Args:
        run_dir: the run directory.
        run_id: the run whose checkpoints rotate.
        limit: how many to keep; ``None`` keeps all.
        protect: checkpoints that must stay.
    """
    if limit is None:
        return []
    mine = [path for path in list_checkpoints(run_dir) if checkpoint_run_id(path) == run_id]
    kept = {Path(path).name for path in protect}
    if mine:
        kept.add(mine[-1].name)
    deleted: list[Path] = []
    for path in mine:
        if len(mine) - len(deleted) <= max(limit, 1):
            break
        if path.name not in kept and _discard(path):
            deleted.append(path)
    return deleted


def _discard(path: Path) -> bool:
    try:
        discard_checkpoint(path)
    except OSError as error:
        logger.warning("The old checkpoint %s could not be deleted: %s.", path, error)
        return not path.exists()  # begun all the same; the next start removes the rest
    return True


def checkpoint_run_id(path: Path) -> str | None:
    """Return the run id in a checkpoint's manifest; ``None`` where it cannot be read.

    The manifest is not verified: this is asked at every save, about checkpoints nobody resumes.
    """
    try:
        manifest = parse_json((path / MANIFEST_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    run_id = manifest.get("run_id") if isinstance(manifest, dict) else None
    return run_id if isinstance(run_id, str) else None
