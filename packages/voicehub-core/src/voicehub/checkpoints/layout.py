"""Names inside a run directory, and finding checkpoints by them.

Nothing is opened or hashed here, and no tensor library is imported: listing costs a few system
calls. A checkpoint counts as complete when its ``.complete`` file exists.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

FORMAT_VERSION = 4

MODEL_FILE = "model_state.safetensors"
FROZEN_FILE = "frozen_state.safetensors"
OPTIMIZER_FILE = "optimizer.pt"
SCHEDULER_FILE = "scheduler.pt"
SCALER_FILE = "scaler.pt"
RNG_FILE = "rng_state.pth"
RUNTIME_FILE = "training_runtime.pt"
TRAINER_STATE_FILE = "trainer_state.json"
TRAINING_ARGS_FILE = "training_args.json"
RECIPE_FILE = "training_recipe.json"
MANIFEST_FILE = "checkpoint_manifest.json"
COMPLETE_FILE = ".complete"
#: Written first into a staging directory: who is writing it.
OWNER_FILE = ".owner.json"

#: Files that the writer makes itself; payloads may not use these names.
RESERVED_FILES = frozenset(
    {
        MODEL_FILE,
        FROZEN_FILE,
        OPTIMIZER_FILE,
        SCHEDULER_FILE,
        SCALER_FILE,
        RNG_FILE,
        RUNTIME_FILE,
        MANIFEST_FILE,
        COMPLETE_FILE,
        OWNER_FILE,
    }
)

_CHECKPOINT = re.compile(r"checkpoint-(0|[1-9][0-9]*)")
_STAGING = re.compile(r"\.checkpoint-(0|[1-9][0-9]*)\.incomplete-[0-9a-f]{16}")


def checkpoint_name(step: int) -> str:
    """Return the directory name of the checkpoint of ``step`` (global, in optimizer steps)."""
    return f"checkpoint-{step}"


def checkpoint_step(path: str | os.PathLike[str]) -> int | None:
    """Return the step in a checkpoint's directory name, or ``None`` for any other name."""
    match = _CHECKPOINT.fullmatch(Path(path).name)
    return int(match.group(1)) if match else None


def staging_name(step: int) -> str:
    """Return a fresh name for the directory in which a checkpoint is written or deleted."""
    # os.urandom, not `random`: saving must not advance the training's random state.
    return f".checkpoint-{step}.incomplete-{os.urandom(8).hex()}"


def is_staging_name(name: str) -> bool:
    """Tell whether ``name`` is one that ``staging_name`` makes."""
    return _STAGING.fullmatch(name) is not None


def is_complete(path: str | os.PathLike[str]) -> bool:
    """Tell whether the directory ``path`` was completed; says nothing about later damage."""
    return (Path(path) / COMPLETE_FILE).is_file()


def list_checkpoints(run_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the complete checkpoints of a run directory in ascending order of their step.

    A run directory that does not exist holds none.
    """
    return [path for _, path in sorted(_numbered(Path(run_dir))) if is_complete(path)]


def latest_checkpoint(run_dir: str | os.PathLike[str]) -> Path | None:
    """Return the complete checkpoint with the highest step, or ``None``."""
    for _, path in sorted(_numbered(Path(run_dir)), reverse=True):
        if is_complete(path):
            return path
    return None


def _numbered(run_dir: Path) -> list[tuple[int, Path]]:
    if not run_dir.is_dir():
        return []
    found = [(checkpoint_step(path), path) for path in run_dir.iterdir()]
    return [(step, path) for step, path in found if step is not None and path.is_dir()]
