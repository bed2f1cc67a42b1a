"""Shards of whole tensors, and optimizer state without its tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voicehub.checkpoints.shards import (
    assign,
    index_document,
    index_name,
    put_back,
    read_shards,
    take_out,
    write_shard,
)
from voicehub.checkpoints.strict_json import dump_json
from voicehub.errors import CheckpointCorruptError


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 1000), min_size=1), st.integers(1, 8))
def test_every_tensor_has_one_writer_and_loads_are_even(sizes: dict[str, int], ranks: int) -> None:
    owners = assign(sizes, ranks)
    assert owners.keys() == sizes.keys()
    load = [sum(sizes[n] for n in sizes if owners[n] == rank) for rank in range(ranks)]
    assert max(load) - min(load) <= max(sizes.values())
    assert owners == assign(dict(reversed(sizes.items())), ranks)


def write(directory: Path, ranks: int) -> dict[str, torch.Tensor]:
    tensors = {f"layer.{n}": torch.full((n + 1, 2), float(n)) for n in range(5)}
    nbytes = {name: tensor.nbytes for name, tensor in tensors.items()}
    owners = assign(nbytes, ranks)
    for rank in range(ranks):
        mine = {name: tensor for name, tensor in tensors.items() if owners[name] == rank}
        write_shard(directory, "model_state", rank, owners, mine)
    index = index_document("model_state", owners, nbytes)
    (directory / index_name("model_state")).write_bytes(dump_json(index, "index"))
    return tensors


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_shards_read_back_whatever_their_number(ranks: int, tmp_path: Path) -> None:
    tensors = write(tmp_path, ranks)
    read = read_shards(tmp_path, "model_state", names(tmp_path))
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    assert len(list(tmp_path.glob("*.safetensors"))) == ranks


def test_a_shard_that_is_gone_is_corruption(tmp_path: Path) -> None:
    write(tmp_path, 2)
    verified = names(tmp_path)
    (tmp_path / "model_state-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointCorruptError, match="model_state.safetensors.index.json"):
        read_shards(tmp_path, "model_state", verified)


def test_a_file_that_the_manifest_does_not_list_is_not_read(tmp_path: Path) -> None:
    """An index could name one outside of the checkpoint, whose digest nobody has looked at."""
    directory = tmp_path / "checkpoint-1"
    directory.mkdir()
    write(directory, 1)
    verified = names(directory)
    shard = directory / "model_state-00001-of-00001.safetensors"
    shard.rename(tmp_path / "other.safetensors")
    index = directory / index_name("model_state")
    index.write_text(index.read_text().replace(shard.name, "../other.safetensors"))
    with pytest.raises(CheckpointCorruptError, match=r"'\.\./other.safetensors', which the man"):
        read_shards(directory, "model_state", verified)


def test_tensors_are_taken_out_of_nested_state_and_put_back() -> None:
    state = {
        "g": {
            "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(2)}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0]}],
        }
    }
    held: dict[str, torch.Tensor] = {}

    def take(name: str, tensor: torch.Tensor) -> bool:
        if tensor.ndim == 0:
            return False
        held[name] = tensor
        return True

    skeleton = take_out(state, take)
    assert held.keys() == {"g/state/0/exp_avg"}
    assert isinstance(skeleton["g"]["state"][0]["step"], torch.Tensor)
    assert skeleton["g"]["param_groups"] == state["g"]["param_groups"]
    back = put_back(skeleton, held)
    assert back["g"]["state"][0]["exp_avg"] is held["g/state/0/exp_avg"]
    with pytest.raises(KeyError):
        put_back(skeleton, {})
