"""The published layout on disk: a TensorDict mapped into memory, one file a tensor.

A directory holds ``meta.json``, which states the shape and dtype of every tensor, and
``NAME.memmap`` with its bytes in C order. The first dimension counts clips. It is written by
``TensorDict.memmap_()`` and read here without that package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voicehub.errors import DataError

META_FILE = "meta.json"
MEAN, STD, TEXT, CLIP, SYNC = "mean", "std", "text_features", "clip_features", "sync_features"
#: Valid latent frames of each clip, int64 (clips,); absent where all frames are valid.
FRAMES = "frames"
#: Ids of the clips, int64 (clips,) or uint8 (clips, bytes) of UTF-8 filled up with zeros.
IDS = "id"
AUDIO_TENSORS = (MEAN, STD, TEXT)
VIDEO_TENSORS = (*AUDIO_TENSORS, CLIP, SYNC)

DTYPES = {
    str(dtype): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.uint8,
    )
}


@dataclass(frozen=True)
class StoredTensor:
    """One tensor on disk; rows are read one by one, so that memory stays what a row takes.

    Attributes:
        path: its file.
        shape: of the whole, clips first.
        dtype: of its numbers.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one clip."""
        return self.shape[1:]

    @property
    def row_bytes(self) -> int:
        """Bytes of one clip."""
        return math.prod(self.row_shape) * self.dtype.itemsize

    def read_bytes(self, row: int, count: int = 1) -> bytearray:
        """The bytes of ``count`` rows from ``row`` on.

        Raises:
            DataError: the file has become shorter, or cannot be read.
        """
        content = bytearray(count * self.row_bytes)
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(row * self.row_bytes)
                have = file.readinto(content) or 0
                view = memoryview(content)
                while have < len(content):
                    more = file.readinto(view[have:])
                    if not more:
                        raise DataError(
                            f"{self.path}: ends within row {row}; the file was cut after the "
                            "store was opened. Restore it."
                        )
                    have += more
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror or error}).") from error
        return content

    def rows(self, row: int, count: int) -> Tensor:
        """Rows of the tensor, (count, ...), in the stored dtype."""
        content = self.read_bytes(row, count)
        if not content:
            return torch.empty((count, *self.row_shape), dtype=self.dtype)
        return torch.frombuffer(content, dtype=self.dtype).reshape(count, *self.row_shape)


def is_tensordict(directory: Path) -> bool:
    """Whether a directory holds a TensorDict that was mapped into memory."""
    return (directory / META_FILE).is_file()


def read_layout(directory: Path) -> dict[str, StoredTensor]:
    """The tensors of a directory in the published layout, none of them read.

    Raises:
        DataError: it is no such directory, or a file is missing, or of another size than its
            stated shape needs.
    """
    document = _meta(directory)
    tensors = {
        name: _tensor(directory, name, entry)
        for name, entry in document.items()
        if isinstance(entry, Mapping) and "dtype" in entry and "shape" in entry
    }
    if not tensors:
        raise DataError(
            f"{directory / META_FILE}: describes no tensor; expected "
            f"{', '.join(VIDEO_TENSORS)} as TensorDict.memmap_() writes them."
        )
    lengths = {name: tensor.shape[0] for name, tensor in tensors.items() if tensor.shape}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {count:,}" for name, count in lengths.items())
        raise DataError(f"{directory}: its tensors hold different numbers of clips: {shown}.")
    return {name: tensor for name, tensor in tensors.items() if tensor.shape}


def write_meta(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write ``meta.json`` as tensordict writes it, so that ``TensorDict.load_memmap`` reads it."""
    count = len(next(iter(tensors.values())))
    document: dict[str, Any] = {
        name: {
            "device": "cpu",
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype),
            "is_nested": False,
        }
        for name, tensor in tensors.items()
    }
    document |= {
        "shape": [count],
        "device": "cpu",
        "_type": "<class 'tensordict._td.TensorDict'>",
        "_format_version": 1,
        "_class": "tensordict:TensorDict",
    }
    (directory / META_FILE).write_text(json.dumps(document), encoding="utf-8")


def tensor_path(directory: Path, name: str) -> Path:
    """File of a tensor."""
    return directory / f"{name}.memmap"


def raw_bytes(tensor: Tensor) -> bytes:
    """The bytes of a tensor in C order."""
    flat: Tensor = tensor.contiguous().reshape(-1).view(torch.uint8)
    return flat.numpy().tobytes()


def _meta(directory: Path) -> dict[str, Any]:
    path = directory / META_FILE
    if not path.is_file():
        raise DataError(
            f"{directory}: holds no {META_FILE}, so it is no feature store. Expected a directory "
            "that `voicehub features extract` or TensorDict.memmap_() has written."
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}).") from error
    if not isinstance(document, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(document).__name__}.")
    return document


def _tensor(directory: Path, name: str, entry: Mapping[str, Any]) -> StoredTensor:
    path = tensor_path(directory, name)
    dtype = DTYPES.get(str(entry["dtype"]))
    if dtype is None:
        raise DataError(
            f"{directory / META_FILE}: {name} has the dtype {entry['dtype']}; expected one of "
            f"{', '.join(DTYPES)}."
        )
    try:
        shape = tuple(int(size) for size in entry["shape"])
    except (TypeError, ValueError):
        raise DataError(
            f"{directory / META_FILE}: {name} has the shape {entry['shape']!r}; expected a list of "
            "whole numbers."
        ) from None
    if not path.is_file():
        raise DataError(f"{path}: missing, though {META_FILE} beside it names {name}.")
    expected, found = math.prod(shape) * dtype.itemsize, path.stat().st_size
    if expected != found:
        raise DataError(
            f"{path}: {found:,} bytes; shape {list(shape)} of {dtype} needs {expected:,}. The file "
            "is cut, or belongs to another store."
        )
    return StoredTensor(path, shape, dtype)
