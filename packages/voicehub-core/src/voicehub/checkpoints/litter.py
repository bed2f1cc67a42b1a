"""Directories that nobody needs any more: leftovers of killed writers, and safe deletion."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from pathlib import Path

from voicehub.checkpoints.layout import checkpoint_step, is_staging_name, staging_name
from voicehub.checkpoints.owner import is_abandoned, read_owner

logger = logging.getLogger(__name__)


def remove_litter(run_dir: str | os.PathLike[str], run_id: str | None = None) -> list[Path]:
    """Remove staging directories whose writer was killed, and return what was removed.

    Only names that ``staging_name`` makes are touched, and none whose process still lives. Call it
    at the start of a run, before anything is written.
    """
    root = Path(run_dir)
    if not root.is_dir():
        return []
    removed = []
    for path in sorted(root.iterdir()):
        if not is_staging_name(path.name) or path.is_symlink() or not path.is_dir():
            continue
        if is_abandoned(read_owner(path), run_id):
            try:
                shutil.rmtree(path)
            except OSError as error:
                logger.warning("%s, left by a killed process, cannot be removed: %s.", path, error)
            else:
                removed.append(path)
    return removed


def discard_checkpoint(path: Path) -> None:
    """Delete a checkpoint so that at no moment a half-deleted one looks complete.

    It is renamed to a staging name first; if the process dies meanwhile, the next start removes
    the rest.
    """
    step = checkpoint_step(path)
    hidden = path.with_name(staging_name(0 if step is None else step))
    path.rename(hidden)
    shutil.rmtree(hidden)


def remove_staging(path: Path) -> None:
    """Remove a staging directory after a failure, as far as the file system allows."""
    with contextlib.suppress(OSError):
        shutil.rmtree(path)
