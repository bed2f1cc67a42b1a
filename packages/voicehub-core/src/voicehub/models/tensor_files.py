"""Weights of a portable artifact: safetensors, read whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from voicehub.errors import CheckpointError, CheckpointMismatchError


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors, wherever they are, to one file."""
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, path, metadata={"format": "pt"})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file, on the CPU.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors: {error}") from error


def require_same_tensors(
    own: Mapping[str, Tensor], given: Mapping[str, Tensor], source: str | Path
) -> None:
    """Compare names and shapes before anything is copied.

    Args:
        own: Of the model.
        given: What is to be loaded.
        source: Where it comes from, for the message.

    Raises:
        CheckpointMismatchError: they differ; the first difference is named.
    """
    ours = {name: tuple(tensor.shape) for name, tensor in own.items()}
    theirs = {name: tuple(tensor.shape) for name, tensor in given.items()}
    if ours == theirs:
        return
    names = sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))
    first = names[0]
    raise CheckpointMismatchError(
        f"{source} does not fit the model that is described; {len(names)} tensors differ, the "
        f"first {first!r}: expected {ours.get(first)}, found {theirs.get(first)}."
    )
