"""Checkpoints of several processes: exact on as many, and on any other number by request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_tasks import make, result, resume, train, weights

from voicehub.checkpoints.reader import open_checkpoint
from voicehub.errors import CheckpointMismatchError
from voicehub.testing.ranks import run_on_ranks
from voicehub.testing.training import equal

#: Four micro-batches of 2 an update, 22 samples an epoch: step 4 lies inside the second epoch.
BASE: dict[str, Any] = {
    "recipe": "hybrid",
    "per_device_train_batch_size": 2,
    "max_steps": 7,
    "ema_decay": 0.9,
    "optim": "adamw",
    "max_grad_norm": 0.3,
    "save_strategy": "steps",
    "save_steps": 4,
    "dropout": 0.0,
}


def settings(world: int, strategy: str, **more: Any) -> dict[str, Any]:
    return {**BASE, "strategy": strategy, "gradient_accumulation_steps": 4 // world, **more}


def on(world: int, task: Any, *arguments: Any) -> list[Any]:
    """Run a task on real ranks, or here where one process is asked for."""
    return [task(*arguments)] if world == 1 else run_on_ranks(world, task, *arguments)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_the_same_processes_go_on_bit_for_bit(strategy: str, tmp_path: Path) -> None:
    run = settings(2, strategy, dropout=0.2, recipe="gan")
    whole = run_on_ranks(2, train, tmp_path, [run])
    again = run_on_ranks(2, resume, tmp_path / "0", 4, run)
    for rank in range(2):
        assert equal(again[rank]["weights"], whole[rank][0]["weights"])
        assert equal(again[rank]["average"], whole[rank][0]["average"])
        assert again[rank]["speaks"] is (rank == 0)
        assert again[rank]["losses"] == whole[rank][0]["losses"]


@pytest.mark.parametrize(
    "before, after",
    [
        ((2, "ddp"), (1, "torch")),
        ((2, "ddp"), (4, "ddp")),
        ((2, "fsdp"), (1, "torch")),
        ((2, "fsdp"), (2, "ddp")),
        ((2, "ddp"), (2, "fsdp")),
        ((2, "fsdp"), (4, "fsdp")),
        ((1, "torch"), (2, "fsdp")),
    ],
)
def test_other_processes_go_on_from_the_same_state(
    before: tuple[int, str], after: tuple[int, str], tmp_path: Path
) -> None:
    whole = on(before[0], train, tmp_path, [settings(*before)])[0][0]
    checkpoint = open_checkpoint(tmp_path / "0" / "checkpoint-4")
    run = settings(*after, resume_topology="any")
    for found in on(after[0], resume, tmp_path / "0", 4, run):
        assert equal(found["loaded"]["weights"], checkpoint.tensors())
        assert equal(found["loaded"]["optimizer"], checkpoint.optimizer())
        assert found["loaded"]["position"] == whole["positions"][4]
        assert found["steps"] == 7
        for name, value in whole["weights"].items():
            torch.testing.assert_close(found["weights"][name], value, rtol=1e-9, atol=1e-12)


def test_another_number_of_processes_is_refused_and_the_way_named(tmp_path: Path) -> None:
    run_on_ranks(2, train, tmp_path, [settings(2, "ddp")])
    directory = tmp_path / "0"
    with pytest.raises(CheckpointMismatchError, match="resume_topology='any'") as refused:
        resume(directory, 4, settings(1, "torch"))
    assert "strategy.world_size: checkpoint=2, current=1" in str(refused.value)
    other_batch = {**settings(1, "torch"), "gradient_accumulation_steps": 2}
    with pytest.raises(CheckpointMismatchError, match=r"accumulation x processes.*4, current=2"):
        resume(directory, 4, {**other_batch, "resume_topology": "any", "max_steps": 7})


def test_every_process_writes_a_shard_under_one_manifest(tmp_path: Path) -> None:
    run_on_ranks(2, train, tmp_path, [settings(2, "fsdp")])
    directory = tmp_path / "0" / "checkpoint-4"
    manifest = json.loads((directory / "checkpoint_manifest.json").read_text())
    for stem in ("model_state", "optimizer"):
        index = json.loads((directory / f"{stem}.safetensors.index.json").read_text())
        files = set(index["weight_map"].values())
        assert files == {f"{stem}-0000{n}-of-00002.safetensors" for n in (1, 2)}
        assert files < set(manifest["required_files"])
    assert not (directory / "model_state.safetensors").exists()
    alone = make(directory=tmp_path / "alone", **{**BASE, "gradient_accumulation_steps": 4})
    alone.graph  # noqa: B018 - set up, to load into
    alone.load_weights(directory)
    assert equal(weights(alone), open_checkpoint(directory).tensors())
    assert result(alone)["steps"] == 0
