"""Writing safetensors files straight from the tensors' memory, hashed on the way.

The library's own writer cannot hash what it writes, so that every byte would be read back from
disk; it also writes under a temporary name of its own and gives the file another mode than the
process would. The format is a header length (8 bytes, little-endian), a JSON header padded to a
multiple of 8, and the tensors' bytes in the order of their offsets, without gaps.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from voicehub.checkpoints.hashed_files import HashingFile
from voicehub.checkpoints.manifest import FileDigest
from voicehub.errors import CheckpointError

_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> FileDigest:
    """Write contiguous CPU tensors as a safetensors file, sync it and return its digest.

    Raises:
        CheckpointError: the format has no name for the dtype of a tensor (named).
        OSError: the file cannot be written.
    """
    if sys.byteorder != "little":
        raise CheckpointError("safetensors files are little-endian; this machine is not.")
    ordered = sorted(tensors.items(), key=_place)
    with HashingFile(path) as file:
        file.write(_header(ordered))
        for _, tensor in ordered:
            if tensor.numel():
                file.write(_bytes_of(tensor))
    return file.digest()


def digest_of_tensors(tensors: Mapping[str, torch.Tensor]) -> FileDigest:
    """The digest of the file that ``write_tensors`` would write."""
    ordered = sorted(tensors.items(), key=_place)
    header = _header(ordered)
    digest, size = hashlib.sha256(header), len(header)
    for _, tensor in ordered:
        if tensor.numel():
            digest.update(_bytes_of(tensor))
            size += tensor.nbytes
    return FileDigest(size, digest.hexdigest())


def _place(named: tuple[str, torch.Tensor]) -> tuple[int, str]:
    """Wide elements first, which keeps all of them aligned, whatever the shapes."""
    return -named[1].element_size(), named[0]


def _header(tensors: list[tuple[str, torch.Tensor]]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors:
        dtype = _NAMES.get(tensor.dtype)
        if dtype is None:
            raise CheckpointError(
                f"safetensors cannot hold model tensor {name!r}, whose type is {tensor.dtype}."
            )
        end = offset + tensor.nbytes
        entries[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous tensor; nothing is copied."""
    plain = tensor.resolve_conj().resolve_neg().reshape(-1)
    return plain.view(torch.uint8).numpy().data
