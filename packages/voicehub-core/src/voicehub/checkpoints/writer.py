"""Writing a checkpoint: beside its target, synced to disk, then renamed in one step.

``snapshot`` detaches the state from the training and is cheap; ``commit`` hashes, writes, syncs and
renames, touches nothing that training touches, and may run in a thread.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import torch

from voicehub.checkpoints.beside import Beside
from voicehub.checkpoints.frozen_file import write_frozen
from voicehub.checkpoints.hashed_files import (
    HashingFile,
    files_below,
    sync_directories,
    sync_directory,
    sync_file,
    write_synced,
)
from voicehub.checkpoints.layout import (
    COMPLETE_FILE,
    FROZEN_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    OWNER_FILE,
    checkpoint_name,
    is_complete,
    staging_name,
)
from voicehub.checkpoints.litter import remove_staging
from voicehub.checkpoints.manifest import FileDigest, build_manifest, complete_mark, hash_file
from voicehub.checkpoints.owner import write_owner
from voicehub.checkpoints.rotation import checkpoint_run_id
from voicehub.checkpoints.snapshot import CheckpointPayload, Snapshot, snapshot
from voicehub.checkpoints.tensor_file import write_tensors
from voicehub.errors import CheckpointError

__all__ = ["CheckpointExistsError", "CheckpointPayload", "commit", "snapshot", "write_checkpoint"]


class Shards(NamedTuple):
    """What several processes have written of one checkpoint.

    Attributes:
        directory: where, as ``begin`` returned it.
        files: digests by name.
    """

    directory: Path
    files: Mapping[str, FileDigest]


_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Room for headers and metadata beyond the tensors themselves, in bytes.
_MARGIN = 1 << 20


class CheckpointExistsError(CheckpointError, FileExistsError):
    """The place of a checkpoint is taken by something that is not this run's to replace."""


def write_checkpoint(
    run_dir: str | os.PathLike[str],
    step: int,
    payload: CheckpointPayload,
    manifest_fields: Mapping[str, Any],
) -> Path:
    """Write ``checkpoint-<step>`` while the training waits, and return its path.

    Args:
        run_dir: the run directory; created when missing.
        step: global step.
        payload: the live state.
        manifest_fields: entries of the manifest; ``run_id`` (a string) is required.

    Raises:
        CheckpointError: the state cannot be stored or the disk is full; nothing of this checkpoint
            remains and older ones are untouched.
        CheckpointExistsError: the place is taken by something foreign.
    """
    return commit(run_dir, step, snapshot(payload, copy=False), manifest_fields)


def commit(
    run_dir: str | os.PathLike[str],
    step: int,
    content: Snapshot,
    manifest_fields: Mapping[str, Any],
    shards: Shards | None = None,
) -> Path:
    """Write a snapshot to disk; see ``write_checkpoint``.

    Args:
        run_dir: the run directory.
        step: global step.
        content: the snapshot; without model tensors where ``shards`` hold them.
        manifest_fields: see ``write_checkpoint``.
        shards: what other processes have written of it, in a directory of ``begin``.
    """
    run_id = manifest_fields.get("run_id")
    if not isinstance(run_id, str) or not run_id:
        raise CheckpointError("manifest_fields needs a non-empty 'run_id'.")
    root = Path(run_dir)
    target = root / checkpoint_name(step)
    with _explained(root, target, content.nbytes):
        _check_place(target, run_id)
        if shards is None:
            root.mkdir(parents=True, exist_ok=True)
        _check_space(root, content.nbytes)
        staging = root / staging_name(step) if shards is None else shards.directory
        try:
            if shards is None:
                staging.mkdir()
                write_owner(staging, run_id)
            if shards is None:
                files = _write_model(staging, content, root, run_id)
            else:
                _check_shards(staging, shards.files)
                files = {**shards.files, **_write_states(staging, content)}
            files.update(_write_rest(staging, content, files))
            manifest = build_manifest(step, files, manifest_fields)
            write_synced(staging / MANIFEST_FILE, manifest)
            sync_directories(staging)
            write_synced(staging / COMPLETE_FILE, complete_mark(manifest))
            sync_directory(staging)
            _publish(staging, target, step, run_id)
        except BaseException:
            remove_staging(staging)
            raise
    return target


def begin(run_dir: str | os.PathLike[str], step: int, run_id: str) -> Path:
    """Make the directory in which several processes write one checkpoint, by one of them."""
    root = Path(run_dir)
    target, staging = root / checkpoint_name(step), root / staging_name(step)
    with _explained(root, target, 0):
        root.mkdir(parents=True, exist_ok=True)
        _check_place(target, run_id)
        staging.mkdir()
        write_owner(staging, run_id)
    return staging


@contextmanager
def explained_write(directory: Path, nbytes: int) -> Iterator[None]:
    """Name what was needed where a process cannot write its share of a checkpoint."""
    with _explained(directory.parent, directory, nbytes):
        yield


def _write_model(
    staging: Path, content: Snapshot, root: Path, run_id: str
) -> dict[str, FileDigest]:
    """Write the weights and the states and return the digests by name."""
    trained = {n: tensor for n, tensor in content.tensors.items() if n not in content.frozen}
    # Two large files at a time: hashing, at one core's speed, is what takes longest.
    with Beside(lambda: write_tensors(staging / MODEL_FILE, trained)) as model:
        files = _write_states(staging, content)
    files[MODEL_FILE] = model.result()
    if content.frozen:
        frozen = {name: content.tensors[name] for name in content.frozen}
        files[FROZEN_FILE] = write_frozen(staging / FROZEN_FILE, frozen, root, run_id)
    return files


def _write_rest(
    staging: Path, content: Snapshot, written: Mapping[str, FileDigest]
) -> dict[str, FileDigest]:
    """Write and sync what is no weights and no state, and return the digests of all new files."""
    files: dict[str, FileDigest] = {}
    for name, document in content.documents.items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        files[name] = write_synced(path, document)
    for name, write in content.extra_files.items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
        if not path.exists():
            raise CheckpointError(f"the writer of extra file {name!r} wrote nothing at its path.")
    for path in files_below(staging):
        name = path.relative_to(staging).as_posix()
        if name not in files and name not in written and name != OWNER_FILE:
            sync_file(path)
            files[name] = hash_file(path)
    return files


def _write_states(staging: Path, content: Snapshot) -> dict[str, FileDigest]:
    files = {}
    for name, state in content.states.items():
        with HashingFile(staging / name) as file:
            torch.save(state, cast(BinaryIO, file))
        files[name] = file.digest()
    return files


def _check_shards(staging: Path, shards: Mapping[str, FileDigest]) -> None:
    """See that what other processes have written is here, as on a shared file system it is."""
    for name, digest in shards.items():
        path = staging / name
        if not path.is_file() or path.stat().st_size != digest.size:
            raise CheckpointError(
                f"{path}, written by another process, is not here with its {digest.size:,} bytes. "
                "All processes of a run need the same output_dir on a shared file system."
            )


def _check_place(target: Path, run_id: str) -> None:
    """Refuse early when something foreign lies where the checkpoint is to go."""
    if not target.exists() and not target.is_symlink():
        return
    owner = checkpoint_run_id(target)
    if is_complete(target) and owner is not None and owner != run_id:
        raise CheckpointExistsError(
            f"{target} already exists and belongs to run {owner!r}, not to this run {run_id!r}. "
            "Choose another output_dir or remove it."
        )
    if not _looks_like_checkpoint(target):
        raise CheckpointExistsError(
            f"{target} already exists and is no checkpoint. Choose another output_dir or remove it."
        )


def _publish(staging: Path, target: Path, step: int, run_id: str) -> None:
    """Rename a finished checkpoint to its final name.

    A resume from an older checkpoint reaches steps that were saved before: this run's own
    checkpoint is then replaced, and a damaged one set aside under a name that says so.
    """
    old: Path | None = None
    is_ours = False
    if target.exists():
        is_ours = is_complete(target) and checkpoint_run_id(target) == run_id
        damaged = f"{target.name}.damaged-{os.urandom(4).hex()}"
        old = target.with_name(staging_name(step) if is_ours else damaged)
        target.rename(old)
    try:
        staging.rename(target)
    except BaseException:
        if old is not None:
            old.rename(target)
        raise
    sync_directory(target.parent)
    # The checkpoint is complete: what cannot be tidied up now harms nobody.
    with suppress(OSError):
        (target / OWNER_FILE).unlink()
    if old is not None and is_ours:
        remove_staging(old)


def _looks_like_checkpoint(path: Path) -> bool:
    if path.is_symlink() or not path.is_dir():
        return False
    return any((path / name).exists() for name in (MANIFEST_FILE, COMPLETE_FILE, MODEL_FILE))


def _check_space(root: Path, nbytes: int) -> None:
    if shutil.disk_usage(root).free < nbytes + _MARGIN:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def _explained(root: Path, target: Path, nbytes: int) -> Iterator[None]:
    """Turn failures of the file system into errors that say what was needed and what to do."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        number = _errno_of(error)
        if number in _NO_SPACE:
            raise CheckpointError(
                f"{target} could not be written: {os.strerror(number)}. It needs about "
                f"{_megabytes(nbytes + _MARGIN)}; {_free_text(root)} free. Older checkpoints are "
                "untouched. Free space, lower save_total_limit or choose another output_dir."
            ) from error
        if number is not None:
            raise CheckpointError(
                f"{target} could not be written: {os.strerror(number)} ({error}). Older "
                "checkpoints are untouched."
            ) from error
        raise


def _errno_of(error: BaseException | None) -> int | None:
    """Return the system's error number behind an exception, also through torch and safetensors."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        # safetensors reports its file errors as text only.
        told = re.search(r"\(os error (\d+)\)", str(error))
        if told:
            return int(told.group(1))
        error = error.__cause__ or error.__context__
    return None


def _free_text(root: Path) -> str:
    try:
        return f"{_megabytes(shutil.disk_usage(root).free)} are"
    except OSError:
        return "an unknown amount is"


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
