"""What an upload carries, kept still while training goes on."""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from voicehub.checkpoints.shards import OPTIMIZER_STEM

_PREFIX = ".hub-upload-"
_PICKLES = frozenset({".pt", ".pth", ".pkl", ".pickle", ".ckpt"})
_PICKLED_WEIGHTS = ("pytorch_model", "training_args", "optimizer", "scheduler")


@dataclass(frozen=True)
class Upload:
    """Files on their way.

    Attributes:
        title: commit message, and what messages call it.
        source: the directory that was staged, for messages.
        directory: links to its files, which rotation and later saves leave alone.
        path_in_repo: the folder in the repository; empty for its root.
        size: bytes.
    """

    title: str
    source: Path
    directory: Path
    path_in_repo: str
    size: int

    def files(self) -> list[tuple[str, Path]]:
        """Path in the repository and path here of every file, sorted."""
        found = sorted(path for path in self.directory.rglob("*") if path.is_file())
        prefix = f"{self.path_in_repo}/" if self.path_in_repo else ""
        return [(prefix + path.relative_to(self.directory).as_posix(), path) for path in found]

    def discard(self) -> None:
        """Remove the links; the files they were made of stay."""
        shutil.rmtree(self.directory, ignore_errors=True)


def stage(source: Path, run_dir: Path, *, title: str, path_in_repo: str = "") -> Upload:
    """Link (or, where links are not possible, copy) what may be uploaded of ``source``.

    Left out: pickles, which a reader would have to trust, the optimizer's shards, which are twice
    the weights, and hidden files such as ``.complete``: without the optimizer's state this is no
    checkpoint to resume from.
    """
    directory = run_dir / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    directory.mkdir(parents=True)
    size = 0
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and _may_leave(relative):
            target = directory / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(path, target)
            size += target.stat().st_size
    return Upload(title, source, directory, path_in_repo, size)


def remove_litter(run_dir: Path) -> None:
    """Remove what a killed process of this run left behind."""
    for path in run_dir.glob(f"{_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def _may_leave(relative: Path) -> bool:
    hidden = any(part.startswith(".") for part in relative.parts)
    pickle = relative.suffix in _PICKLES or (
        relative.suffix == ".bin" and relative.name.startswith(_PICKLED_WEIGHTS)
    )
    of_optimizer = relative.name.startswith((f"{OPTIMIZER_STEM}-", f"{OPTIMIZER_STEM}."))
    return not hidden and not pickle and not of_optimizer


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
