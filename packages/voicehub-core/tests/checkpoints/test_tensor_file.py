"""The project's own writer of safetensors files against the library's reader."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from voicehub.checkpoints.tensor_file import _NAMES, write_tensors
from voicehub.errors import CheckpointError


def tensors():
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(0, 2, (24,), generator=generator, dtype=torch.uint8)
    typed = {f"typed.{name}": raw.view(dtype).clone() for dtype, name in _NAMES.items()}
    return {
        **typed,
        "matrix": torch.randn(3, 5, generator=generator),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.zeros(0, 4),
        "conjugate": torch.randn(4, dtype=torch.complex64, generator=generator).conj(),
        "naïve/层": torch.arange(3),
    }


def as_bytes(tensor):
    return tensor.resolve_conj().reshape(-1).view(torch.uint8)


def test_the_library_reads_what_was_written(tmp_path):
    expected = tensors()
    path = tmp_path / "model.safetensors"
    digest = write_tensors(path, expected)
    read = load_file(path)
    assert read.keys() == expected.keys()
    for name, tensor in expected.items():
        assert read[name].dtype == tensor.dtype and read[name].shape == tensor.shape
        assert torch.equal(as_bytes(read[name]), as_bytes(tensor)), name
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}
    content = path.read_bytes()
    assert digest == (len(content), hashlib.sha256(content).hexdigest())


def test_every_tensor_is_aligned_to_its_elements(tmp_path):
    path = tmp_path / "model.safetensors"
    write_tensors(path, tensors())
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    sizes = {name: tensor.element_size() for name, tensor in tensors().items()}
    assert all(header[name]["data_offsets"][0] % size == 0 for name, size in sizes.items())


def test_a_model_without_tensors_is_a_valid_file(tmp_path):
    write_tensors(tmp_path / "model.safetensors", {})
    assert load_file(tmp_path / "model.safetensors") == {}


def test_a_type_without_a_name_is_refused_by_name(tmp_path):
    with pytest.raises(CheckpointError, match=r"'w'.*complex128"):
        write_tensors(tmp_path / "m", {"w": torch.zeros(1, dtype=torch.complex128)})
