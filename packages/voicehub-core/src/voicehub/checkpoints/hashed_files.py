"""Files that are hashed while they are written, and synced to disk before they count."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from voicehub.checkpoints.beside import Beside
from voicehub.checkpoints.manifest import FileDigest

#: From this size on, in bytes, hashing a piece in a thread of its own costs less than it saves.
_LARGE = 1 << 20


class HashingFile:
    """A new file for writing that hashes what passes through and is synced when it is closed.

    Nothing is buffered: what is written in large pieces, such as tensors, is not copied.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb", buffering=0)
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes | memoryview) -> int:
        """Write all of ``data`` and return its number of bytes.

        Large pieces are hashed and written at the same time. Both have ended when this returns:
        the memory is the caller's again.
        """
        view = memoryview(data).cast("B")
        if len(view) < _LARGE:
            self._hash.update(view)
            self._write(view)
            return len(view)
        with Beside(lambda: self._hash.update(view)) as hashing:
            self._write(view)
            self._begin_writeback(len(view))
        hashing.result()
        return len(view)

    def _write(self, view: memoryview) -> None:
        self._size += len(view)
        while len(view):
            view = view[self._file.write(view) :]

    def _begin_writeback(self, size: int) -> None:
        """Let the disk start on the last ``size`` bytes, so that the sync at the end finds less."""
        if hasattr(os, "posix_fadvise"):
            number = self._file.fileno()
            os.posix_fadvise(number, self._size - size, size, os.POSIX_FADV_DONTNEED)

    def flush(self) -> None:
        """Nothing to do: nothing is buffered."""

    def digest(self) -> FileDigest:
        """Return size and SHA-256 of what has been written."""
        return FileDigest(self._size, self._hash.hexdigest())

    def __enter__(self) -> HashingFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._file:
            if kind is None:
                os.fsync(self._file.fileno())


def write_synced(path: Path, data: bytes) -> FileDigest:
    """Write a small file in one go."""
    with HashingFile(path) as file:
        file.write(data)
    return file.digest()


def sync_file(path: Path) -> None:
    """Wait until what other code wrote into a file is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Sync a directory's entries, where the platform can (Windows cannot open directories)."""
    if os.name == "posix":
        sync_file(path)


def sync_directories(root: Path) -> None:
    """Sync a directory and all below it."""
    for directory, _, _ in os.walk(root, topdown=False):
        sync_directory(Path(directory))


def files_below(root: Path) -> list[Path]:
    """Return all files in a directory and below it, sorted."""
    return sorted(path for path in root.rglob("*") if path.is_file())
