"""State of recipes in artifacts: one safetensors file, read back as it was."""

from __future__ import annotations

import json
import math
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from voicehub.checkpoints.state_file import read_state, write_state
from voicehub.errors import CheckpointError


def equal(first: Any, second: Any) -> bool:
    """Equality in type and value, tensors and arrays bit by bit."""
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and bool(np.array_equal(first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal(first[k], second[k]) for k in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(equal, first, second))
    return bool(first == second) or (isinstance(first, float) and math.isnan(first))


def test_every_kind_of_state_comes_back(tmp_path: Path) -> None:
    shared = torch.arange(6.0).reshape(2, 3)
    state = {
        "shadows": {"layer.weight": shared, "same": shared, "view": shared.T},
        "half": torch.ones(2, dtype=torch.bfloat16),
        "empty": torch.zeros(0, 3),
        "updates": 7,
        "limits": [math.inf, -math.inf, math.nan, 0.5],
        "steps": (1, (2, "three"), None, True),
        1: {"1": "by a number"},
        "1": "by a text",
        ("a", 2): [],
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "array": np.arange(4, dtype=np.int16),
        "queue": deque([1, 2], maxlen=3),
        "$tensor": "not a tensor",
    }
    path = tmp_path / "state.safetensors"
    write_state(path, state)
    assert equal(read_state(path), state)


def test_a_reader_of_safetensors_finds_tensors_by_their_path(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    write_state(path, {"average": {"w": torch.ones(2)}, "updates": 3}, "recipe")
    with safe_open(path, framework="pt") as file:
        assert list(file.keys()) == ["recipe.average.w"]
        tree = json.loads(file.metadata()["state"])
    assert tree == {"average": {"w": {"$tensor": "recipe.average.w"}}, "updates": 3}


def test_what_needs_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="recipe\\['thing'\\]"):
        write_state(tmp_path / "state.safetensors", {"thing": object()}, "recipe")
    assert not (tmp_path / "state.safetensors").exists()
