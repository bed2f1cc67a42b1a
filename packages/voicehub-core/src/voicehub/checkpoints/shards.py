"""Tensors of a checkpoint in several files, each written whole by one process.

A shard holds whole tensors, so that any number of processes, and any reader of safetensors, can
read it. ``<stem>.safetensors.index.json`` says which file holds which tensor, in the layout that
Hugging Face uses. The files stand in the checkpoint's manifest like any other.

Optimizer state is nested: its tensors are taken out, by names such as ``default/3/exp_avg``, and
what is left (settings, counters) stays in ``optimizer.pt`` with the names in their places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from voicehub.checkpoints.strict_json import parse_json
from voicehub.checkpoints.tensor_file import write_tensors
from voicehub.errors import CheckpointCorruptError

MODEL_STEM, OPTIMIZER_STEM = "model_state", "optimizer"
_PLACE = "$shard"

TakeTensor = Callable[[str, torch.Tensor], bool]


def index_name(stem: str) -> str:
    """Return the name of the index of some shards."""
    return f"{stem}.safetensors.index.json"


def shard_name(stem: str, number: int, total: int) -> str:
    """Return the name of one shard, counted from 0."""
    return f"{stem}-{number + 1:05d}-of-{total:05d}.safetensors"


def assign(nbytes: Mapping[str, int], writers: int) -> dict[str, int]:
    """Give each tensor its writer, such that all of them write about as much.

    The same on every process: the largest first, each to whoever has the least so far.
    """
    load = [0] * writers
    owners = {}
    for name in sorted(nbytes, key=lambda name: (-nbytes[name], name)):
        owner = min(range(writers), key=lambda number: (load[number], number))
        owners[name] = owner
        load[owner] += nbytes[name]
    return owners


def index_document(
    stem: str, owners: Mapping[str, int], nbytes: Mapping[str, int]
) -> dict[str, Any]:
    """Return the index as JSON; writers without a tensor have no file."""
    total = max(owners.values(), default=0) + 1
    return {
        "metadata": {"total_size": sum(nbytes.values())},
        "weight_map": {name: shard_name(stem, owners[name], total) for name in sorted(owners)},
    }


def write_shard(
    directory: Path, stem: str, number: int, owners: Mapping[str, int], tensors: Mapping[str, Any]
) -> dict[str, Any]:
    """Write this process's shard and return its digest by file name; nothing where it has none."""
    if not tensors:
        return {}
    name = shard_name(stem, number, max(owners.values(), default=0) + 1)
    return {name: write_tensors(directory / name, tensors)}


def read_shards(checkpoint: Path, stem: str, verified: Collection[str]) -> dict[str, torch.Tensor]:
    """Return all tensors of some shards, on the CPU.

    Args:
        checkpoint: the directory.
        stem: of the names of index and shards.
        verified: names of the files that the manifest vouches for; nothing else is read.

    Raises:
        CheckpointCorruptError: index and shards disagree, or one is unreadable or not verified.
    """
    index = checkpoint / index_name(stem)
    try:
        places: dict[str, str] = parse_json(index.read_bytes())["weight_map"]
        names = sorted(set(places.values()))
        foreign = [name for name in names if name not in verified]
        if foreign:
            raise CheckpointCorruptError(
                f"{index} names {', '.join(map(repr, foreign[:3]))}, which the manifest does not "
                "list. Use another checkpoint."
            )
        files = {name: load_file(checkpoint / name) for name in names}
        return {tensor: files[file][tensor] for tensor, file in places.items()}
    except CheckpointCorruptError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointCorruptError(
            f"{index} and the files it names cannot be read together: {error!r}."
        ) from error


def take_out(state: Any, take: TakeTensor, name: str = "") -> Any:
    """Return nested state without the tensors that ``take`` wants, their names in their places."""
    if isinstance(state, torch.Tensor):
        return {_PLACE: name} if take(name, state) else state
    if isinstance(state, dict):
        return {k: take_out(v, take, f"{name}/{k}" if name else str(k)) for k, v in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(take_out(v, take, f"{name}/{n}") for n, v in enumerate(state))
    return state


def put_back(state: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Undo ``take_out``.

    Raises:
        KeyError: a tensor is missing.
    """
    if isinstance(state, dict):
        if state.keys() == {_PLACE}:
            return tensors[state[_PLACE]]
        return {key: put_back(value, tensors) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(put_back(value, tensors) for value in state)
    return state
