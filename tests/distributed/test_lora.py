"""Low-rank adapters of peft on a frozen encoder: equal updates, and other processes go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lora_tasks import train
from rank_tasks import distance

from voicehub.testing.ranks import run_on_ranks

pytest.importorskip("peft", reason="low-rank adapters need peft")
pytest.importorskip("voicehub_hf", reason="the encoder is one of voicehub-hf")

RUN: dict[str, Any] = {
    "per_device_train_batch_size": 2,
    "max_steps": 4,
    "optim": "adamw",
    "learning_rate": 0.01,
    "ema_decay": 0.9,
    "save_strategy": "steps",
    "save_steps": 2,
    "resume_topology": "any",
    "fsdp_min_block": 1000,  # the encoder's layers are gathered one by one
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("alone")
    return directory, *train(directory, {**RUN, "gradient_accumulation_steps": 2})


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_adapters_on_two_processes_and_on_from_one(
    alone: Any, strategy: str, tmp_path: Path
) -> None:
    directory, expected, start = alone
    two = run_on_ranks(2, train, tmp_path / "two", {**RUN, "strategy": strategy})
    # The checkpoint of one process, without the frozen encoder but for a file listed beside it.
    checkpoint = directory / "checkpoint-2"
    assert (checkpoint / "frozen_state.safetensors").is_file()
    run = {**RUN, "strategy": strategy}
    on = run_on_ranks(2, train, tmp_path / "on", run, checkpoint)
    frozen = expected["weights"].keys() - start.keys()
    assert any("lora_A" in name for name in start) and frozen
    for found, _ in (*two, *on):
        assert found["steps"] == 4
        assert distance(expected["weights"], found["weights"], start) <= 1e-9
        for name in frozen:
            assert torch.equal(found["weights"][name], expected["weights"][name]), name
        for name, average in expected["average"].items():
            torch.testing.assert_close(found["average"][name], average, rtol=1e-9, atol=1e-12)
