"""What the contract says of several processes, on two real ones over gloo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_tasks import make, resume, train, weights

from voicehub.checkpoints.reader import open_checkpoint
from voicehub.errors import CheckpointMismatchError
from voicehub.testing.ranks import run_on_ranks
from voicehub.testing.training import equal

#: Two micro-batches of 2 an update, whoever makes them.
RUN: dict[str, Any] = {
    "recipe": "gan",
    "per_device_train_batch_size": 2,
    "max_steps": 4,
    "optim": "adamw",
    "save_strategy": "steps",
    "save_steps": 2,
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """Directory of the runs ``0`` (ddp) and ``1`` (fsdp), and what each rank ended with."""
    directory = tmp_path_factory.mktemp("ranks")
    return directory, run_on_ranks(
        2, train, directory, [{**RUN, "strategy": name} for name in ("ddp", "fsdp")]
    )


class TestSeveralProcesses:
    @pytest.mark.parametrize("number", [0, 1], ids=["ddp", "fsdp"])
    def test_G5_processes_and_accumulation_are_one(
        self, ranks: Any, number: int, tmp_path: Path
    ) -> None:
        alone = make(directory=tmp_path, **RUN, gradient_accumulation_steps=2)
        alone.train()
        for rank in ranks[1]:
            for name, value in weights(alone).items():
                torch.testing.assert_close(rank[number]["weights"][name], value, rtol=1e-9, atol=0)

    def test_C1_every_process_writes_shards_under_one_manifest(self, ranks: Any) -> None:
        directory = ranks[0] / "1" / "checkpoint-2"
        index = json.loads((directory / "model_state.safetensors.index.json").read_text())
        files = set(index["weight_map"].values())
        manifest = json.loads((directory / "checkpoint_manifest.json").read_text())
        assert len(files) == 2 and files < set(manifest["file_integrity"])
        assert open_checkpoint(directory).tensors().keys() == index["weight_map"].keys()

    def test_C3_another_number_of_processes_is_refused(self, ranks: Any) -> None:
        with pytest.raises(CheckpointMismatchError, match="resume_topology='any'"):
            resume(ranks[0] / "0", 2, {**RUN, "gradient_accumulation_steps": 2})

    @pytest.mark.parametrize("number", [0, 1], ids=["ddp", "fsdp"])
    def test_C3_resume_topology_any_keeps_position_and_optimizer_state(
        self, ranks: Any, number: int
    ) -> None:
        run = {**RUN, "gradient_accumulation_steps": 2, "resume_topology": "any"}
        checkpoint = open_checkpoint(ranks[0] / str(number) / "checkpoint-2")
        found = resume(ranks[0] / str(number), 2, run)
        assert equal(found["loaded"]["optimizer"], checkpoint.optimizer())
        assert found["loaded"]["position"] == ranks[1][0][number]["positions"][2]
        for name, value in ranks[1][0][number]["weights"].items():
            torch.testing.assert_close(found["weights"][name], value, rtol=1e-9, atol=0)
