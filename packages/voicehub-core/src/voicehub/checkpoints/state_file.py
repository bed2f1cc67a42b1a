"""Nested state as one safetensors file: tensors under their paths, all else as JSON beside them.

For state that leaves this machine in an artifact: any reader of safetensors can look at it, and
nobody has to trust a pickle. The JSON is in the file's metadata, under ``state``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from voicehub.checkpoints.codec import decode_state, encode_state

_KEY = "state"
_TENSOR, _TUPLE, _PAIRS = "$tensor", "$tuple", "$pairs"
_DTYPE, _DEVICE, _FLOAT = "$dtype", "$device", "$float"
_TAGS = frozenset({_TENSOR, _TUPLE, _PAIRS, _DTYPE, _DEVICE, _FLOAT})


def write_state(path: Path, state: Any, where: str = "state") -> None:
    """Write ``state``, whatever ``encode_state`` takes.

    Raises:
        CheckpointError: a value, named by its path, cannot be stored without code.
    """
    tensors: dict[str, Tensor] = {}
    tree = _to_json(encode_state(state, where), where, tensors)
    text = json.dumps(tree, allow_nan=False)
    save_file(tensors, path, metadata={"format": "pt", _KEY: text})


def read_state(path: Path) -> Any:
    """Undo ``write_state``; tensors come back on the CPU."""
    with safe_open(path, framework="pt") as file:
        tree = json.loads(file.metadata()[_KEY])
        return decode_state(_from_json(tree, file.get_tensor))


def _to_json(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = path
        while name in tensors:  # two keys that read alike, such as 1 and "1"
            name += "'"
        # A copy of its own: safetensors refuses tensors that share memory.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and not _TAGS & value.keys():
            return {key: _to_json(v, f"{path}.{key}", tensors) for key, v in value.items()}
        pairs = [
            [_to_json(key, path, tensors), _to_json(v, f"{path}.{key}", tensors)]
            for key, v in value.items()
        ]
        return {_PAIRS: pairs}
    if isinstance(value, (list, tuple)):
        items = [_to_json(item, f"{path}.{n}", tensors) for n, item in enumerate(value)]
        return {_TUPLE: items} if isinstance(value, tuple) else items
    if isinstance(value, torch.dtype):
        return {_DTYPE: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {_DEVICE: str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: repr(value)}
    return value


def _from_json(tree: Any, tensor: Callable[[str], Tensor]) -> Any:
    if isinstance(tree, list):
        return [_from_json(item, tensor) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) == 1:
        ((tag, value),) = tree.items()
        if tag == _TENSOR:
            return tensor(value)
        if tag == _TUPLE:
            return tuple(_from_json(item, tensor) for item in value)
        if tag == _PAIRS:
            return {_from_json(k, tensor): _from_json(v, tensor) for k, v in value}
        if tag == _DTYPE:
            return getattr(torch, value)
        if tag == _DEVICE:
            return torch.device(value)
        if tag == _FLOAT:
            return float(value)
    return {key: _from_json(value, tensor) for key, value in tree.items()}
