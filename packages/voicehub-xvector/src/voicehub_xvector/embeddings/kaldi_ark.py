"""Binary archives of Kaldi float vectors, and the lists that point into them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from voicehub.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BINARY = b"\0B"
_TYPES = {b"FV ": np.dtype("<f4"), b"DV ": np.dtype("<f8")}


def write_ark(file: BinaryIO, rows: Iterable[tuple[str, NDArray[np.float32]]]) -> list[int]:
    """Append vectors; return where each begins, behind its key, as a ``.scp`` states it.

    Raises:
        DataError: an id is empty or holds white space, which ends a key in Kaldi's files.
    """
    offsets = []
    for key, vector in rows:
        if not key or key.split() != [key]:
            raise DataError(
                f"The id {key!r} cannot be a key of a Kaldi archive: it is empty or holds white "
                "space. Choose the format npz or parquet, or other ids."
            )
        file.write(key.encode("utf-8") + b" ")
        offsets.append(file.tell())
        file.write(_BINARY + b"FV \x04" + struct.pack("<i", len(vector)))
        file.write(np.ascontiguousarray(vector, dtype="<f4").tobytes())
    return offsets


def read_vector(file: BinaryIO, offset: int, where: str) -> NDArray[np.float32]:
    """Read the vector that begins at an offset.

    Args:
        where: file and row that point there, for messages.

    Raises:
        DataError: there is no binary vector, or the file ends within it.
    """
    file.seek(offset)
    head = file.read(10)
    dtype = _TYPES.get(head[2:5])
    if head[:2] != _BINARY or len(head) < 10 or head[5:6] != b"\x04" or dtype is None:
        raise DataError(f"{where}: no binary Kaldi vector at byte {offset} of {file.name}.")
    (length,) = struct.unpack("<i", head[6:])
    content = file.read(max(0, length) * dtype.itemsize)
    if length < 0 or len(content) < length * dtype.itemsize:
        raise DataError(f"{where}: {file.name} ends within the vector at byte {offset}.")
    return np.frombuffer(content, dtype=dtype).astype(np.float32)


class ArkReader:
    """Reads vectors by file and offset; a file is opened once."""

    def __init__(self, folder: Path) -> None:
        """Relative paths start at ``folder``; so do the names of files that have moved with it."""
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}

    def read(self, path: str, offset: int, where: str) -> NDArray[np.float32]:
        """The vector at an offset of a file; see :func:`read_vector`."""
        if path not in self._files:
            self._files[path] = self._open(path, where)
        return read_vector(self._files[path], offset, where)

    def _open(self, path: str, where: str) -> BinaryIO:
        for place in (self._folder / path, self._folder / Path(path).name):
            if place.is_file():
                return place.open("rb")
        raise DataError(f"{where}: no archive {path} (relative paths start at {self._folder}).")

    def close(self) -> None:
        """Close every file."""
        for file in self._files.values():
            file.close()
