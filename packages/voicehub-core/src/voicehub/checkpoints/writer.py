"""Writing a checkpoint: beside its target, synced to disk, then renamed in one step.

``snapshot`` detaches the state from the training and is cheap; ``commit`` hashes, writes, syncs and
renames, touches nothing that training touches, and may run in a thread.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from safetensors.torch import save_file

from voicehub.checkpoints.layout import (
    COMPLETE_FILE,
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
from voicehub.errors import CheckpointError

__all__ = ["CheckpointExistsError", "CheckpointPayload", "commit", "snapshot", "write_checkpoint"]

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
) -> Path:
    """Write a snapshot to disk; see ``write_checkpoint``."""
    run_id = manifest_fields.get("run_id")
    if not isinstance(run_id, str) or not run_id:
        raise CheckpointError("manifest_fields needs a non-empty 'run_id'.")
    root = Path(run_dir)
    target = root / checkpoint_name(step)
    staging = root / staging_name(step)
    with _explained(root, target, content.nbytes):
        root.mkdir(parents=True, exist_ok=True)
        _check_place(target, run_id)
        _check_space(root, content.nbytes)
        try:
            staging.mkdir()
            write_owner(staging, run_id)
            files = _write_files(staging, content)
            manifest = build_manifest(step, files, manifest_fields)
            _write_synced(staging / MANIFEST_FILE, manifest)
            _sync_directories(staging)
            _write_synced(staging / COMPLETE_FILE, complete_mark(manifest))
            _sync_directory(staging)
            _publish(staging, target, step, run_id)
        except BaseException:
            remove_staging(staging)
            raise
    return target


def _write_files(staging: Path, content: Snapshot) -> dict[str, FileDigest]:
    """Write and sync every file of a snapshot and return the digests by relative name."""
    files: dict[str, FileDigest] = {}
    _write_model(staging / MODEL_FILE, content)
    for name, state in content.states.items():
        with _HashingFile(staging / name) as file:
            torch.save(state, cast(BinaryIO, file))
        files[name] = file.digest()
    for name, document in content.documents.items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        files[name] = _write_synced(path, document)
    for name, write in content.extra_files.items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
        if not path.exists():
            raise CheckpointError(f"the writer of extra file {name!r} wrote nothing at its path.")
    for path in _files_below(staging):
        name = path.relative_to(staging).as_posix()
        if name not in files and name != OWNER_FILE:
            _sync_file(path)
            files[name] = hash_file(path)
    return files


def _write_model(path: Path, content: Snapshot) -> None:
    try:
        save_file(content.tensors, path, metadata={"format": "pt"})
    except (KeyError, TypeError, ValueError) as error:
        types = sorted({str(tensor.dtype) for tensor in content.tensors.values()})
        raise CheckpointError(
            f"safetensors cannot hold these model tensors, whose types are {', '.join(types)}: "
            f"{error}."
        ) from error


class _HashingFile:
    """A file for ``torch.save`` that hashes what passes through and syncs when closed."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb", buffering=0)
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self._size += len(view)
        rest = view
        while len(rest):
            rest = rest[self._file.write(rest) :]
        return len(view)

    def flush(self) -> None:
        self._file.flush()

    def digest(self) -> FileDigest:
        return FileDigest(self._size, self._hash.hexdigest())

    def __enter__(self) -> _HashingFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._file:
            if kind is None:
                os.fsync(self._file.fileno())


def _write_synced(path: Path, data: bytes) -> FileDigest:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return FileDigest(len(data), hashlib.sha256(data).hexdigest())


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    """Sync a directory's entries, where the platform can (Windows cannot open directories)."""
    if os.name == "posix":
        _sync_file(path)


def _sync_directories(root: Path) -> None:
    for directory, _, _ in os.walk(root, topdown=False):
        _sync_directory(Path(directory))


def _files_below(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


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
    _sync_directory(target.parent)
    (target / OWNER_FILE).unlink()
    if old is not None and is_ours:
        shutil.rmtree(old)


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
