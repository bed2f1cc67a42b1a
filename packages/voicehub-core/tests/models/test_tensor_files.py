"""Weights of artifacts: what is written is read, and what does not fit is named."""

from __future__ import annotations

import pytest
import torch

from voicehub.errors import CheckpointError, CheckpointMismatchError
from voicehub.models.tensor_files import read_tensors, require_same_tensors, write_tensors


def test_tensors_come_back(tmp_path):
    path = tmp_path / "weights.safetensors"
    weight = torch.nn.Parameter(torch.arange(6.0).view(2, 3)).T
    write_tensors({"weight": weight, "count": torch.tensor(3)}, path)
    found = read_tensors(path)
    assert torch.equal(found["weight"], weight.detach()) and not found["weight"].requires_grad
    assert found["count"].dtype == torch.int64
    with pytest.raises(CheckpointError, match=r"gone\.safetensors cannot be read"):
        read_tensors(tmp_path / "gone.safetensors")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(CheckpointError, match="cannot be read as safetensors"):
        read_tensors(path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"a": (2,)}, "1 tensors differ, the first 'b': expected \\(3,\\), found None"),
        ({"a": (2,), "b": (4,)}, "the first 'b': expected \\(3,\\), found \\(4,\\)"),
        ({"a": (2,), "b": (3,), "c": ()}, "the first 'c': expected None, found \\(\\)"),
    ],
)
def test_the_first_difference_is_named(given, words):
    own = {"a": torch.zeros(2), "b": torch.zeros(3)}
    require_same_tensors(own, {"b": torch.ones(3), "a": torch.ones(2)}, "here")
    with pytest.raises(CheckpointMismatchError, match=words):
        require_same_tensors(own, {name: torch.zeros(s) for name, s in given.items()}, "here")
