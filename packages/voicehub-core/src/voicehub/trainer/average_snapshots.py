"""Stored averages of a run, from which others are made after training.

``ema-snapshots/step-<step>/`` holds one safetensors file for each tracked average and
``snapshot.json``: the run, the updates, exponents, sizes and SHA-256 digests. Each directory is
written beside its place and renamed there, so that it is complete or absent.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.checkpoints.hashed_files import write_synced
from voicehub.checkpoints.manifest import hash_file
from voicehub.checkpoints.strict_json import dump_json
from voicehub.errors import CheckpointCorruptError, CheckpointError, CheckpointMismatchError
from voicehub.optim.power_profiles import Profile
from voicehub.trainer.saving import replace_directory

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "ema-snapshots"
MANIFEST_FILE = "snapshot.json"
FORMAT = 1

_NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class StoredAverage:
    """One average of a snapshot: its file and what is in it."""

    file: str
    sigma_rel: float
    gamma: float
    size: int
    sha256: str


@dataclass(frozen=True)
class AverageSnapshot:
    """What ``snapshot.json`` says, and where it lies.

    Attributes:
        directory: Of the snapshot.
        run_id: The run that wrote it, as its checkpoints' manifests have it.
        step: Updates of the averages.
        averages: In the order of the run's settings.
    """

    directory: Path
    run_id: str
    step: int
    averages: tuple[StoredAverage, ...]

    def profile(self, average: StoredAverage) -> Profile:
        """The profile of one of its averages."""
        return Profile(average.gamma, self.step)


def snapshot_name(step: int) -> str:
    """Directory of the snapshot after ``step`` updates."""
    return f"step-{step:08d}"


def write_snapshot(
    run_dir: Path,
    *,
    run_id: str,
    step: int,
    averages: Sequence[tuple[float, float, Mapping[str, Tensor]]],
) -> Path:
    """Write the averages after ``step`` updates.

    Args:
        run_dir: of the run.
        run_id: its id.
        step: updates that the averages have taken in.
        averages: relative width, exponent and whole tensors by name of each.

    Raises:
        CheckpointError: the disk took it not; what was there before is untouched.
    """
    from voicehub.checkpoints.tensor_file import write_tensors

    def write(directory: Path) -> None:
        rows = []
        for sigma_rel, gamma, tensors in averages:
            name = f"sigma-rel-{sigma_rel!r}.safetensors"
            plain = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
            digest = write_tensors(directory / name, plain)
            rows.append(asdict(StoredAverage(name, sigma_rel, gamma, digest.size, digest.sha256)))
        manifest = {"format": FORMAT, "run_id": run_id, "step": step, "averages": rows}
        write_synced(directory / MANIFEST_FILE, dump_json(manifest, "snapshot of averages"))

    target = run_dir / FOLDER / snapshot_name(step)
    try:
        return replace_directory(target, write)
    except OSError as error:
        raise CheckpointError(
            f"The averaged weights of step {step} could not be written to '{target}': "
            f"{error.strerror or error}. Older snapshots are untouched. Make room, or set "
            "posthoc_ema_snapshot_steps higher, and resume."
        ) from error


def list_snapshots(run_dir: Path) -> list[AverageSnapshot]:
    """The snapshots of a run directory in the order of their steps; no tensor is read.

    Raises:
        CheckpointCorruptError: a manifest is missing, damaged, or of another step than its name.
    """
    folder = run_dir / FOLDER
    if not folder.is_dir():
        return []
    found = []
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is not None and path.is_dir():
            found.append(_read(path, int(match.group(1))))
    return sorted(found, key=lambda snapshot: snapshot.step)


def _read(directory: Path, named: int) -> AverageSnapshot:
    path = directory / MANIFEST_FILE
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise CheckpointMismatchError(
                f"{path} has format {document['format']!r}; this VoiceHub reads {FORMAT}."
            )
        averages = tuple(StoredAverage(**row) for row in document["averages"])
        snapshot = AverageSnapshot(
            directory, str(document["run_id"]), int(document["step"]), averages
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, CheckpointMismatchError):
            raise
        raise CheckpointCorruptError(
            f"{path} is missing or damaged ({error}). Move {directory.name} elsewhere to go on "
            "without it."
        ) from error
    if snapshot.step != named:
        raise CheckpointCorruptError(
            f"{directory} is named for step {named}, but its manifest says {snapshot.step}; the "
            "directory was renamed."
        )
    return snapshot


def require_own(snapshots: Iterable[AverageSnapshot], run_id: str) -> None:
    """Refuse averages of another run: what is made of both would be the weights of none.

    Raises:
        CheckpointMismatchError: names the first stranger and both runs.
    """
    for snapshot in snapshots:
        if snapshot.run_id != run_id:
            raise CheckpointMismatchError(
                f"{snapshot.directory} holds averages of the run {snapshot.run_id}, but this is "
                f"the run {run_id}. Move it elsewhere: averages of two runs do not mix."
            )


def verify_average(snapshot: AverageSnapshot, average: StoredAverage) -> Path:
    """Check size and digest of a stored average and return its path.

    Raises:
        CheckpointCorruptError: it is missing or damaged.
    """
    path = snapshot.directory / average.file
    try:
        digest = hash_file(path)
    except OSError as error:
        raise CheckpointCorruptError(
            f"{path} cannot be read: {error.strerror or error}."
        ) from error
    if (digest.size, digest.sha256) != (average.size, average.sha256):
        raise CheckpointCorruptError(
            f"{path} is damaged: {digest.size} bytes with SHA-256 {digest.sha256}, but "
            f"{MANIFEST_FILE} says {average.size} and {average.sha256}. Move "
            f"{snapshot.directory.name} elsewhere to go on without it."
        )
    return path


def discard_newer(run_dir: Path, step: int) -> list[int]:
    """Delete snapshots from after ``step``, which a resumed run writes again; return their steps.

    They were of a future that the resumed run may not reach.
    """
    dropped = []
    for path in sorted((run_dir / FOLDER).glob("step-*")):
        match = _NAME.fullmatch(path.name)
        if match is not None and int(match.group(1)) > step:
            shutil.rmtree(path)
            dropped.append(int(match.group(1)))
    return dropped
