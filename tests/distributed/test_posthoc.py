"""Averages with a width chosen afterwards, on several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rank_tasks import resume, train

from voicehub.testing.ranks import run_on_ranks
from voicehub.testing.training import equal
from voicehub.trainer.average_snapshots import FOLDER, list_snapshots
from voicehub.trainer.posthoc_synthesis import plan_synthesis, synthesised

RUN: dict[str, Any] = {
    "recipe": "hybrid",
    "per_device_train_batch_size": 2,
    "max_steps": 7,
    "posthoc_ema": True,
    "posthoc_ema_snapshot_steps": 3,
    "optim": "adamw",
    "save_strategy": "steps",
    "save_steps": 4,
    "dropout": 0.0,
}


@pytest.mark.parametrize(("strategy", "offload"), [("ddp", False), ("fsdp", True)])
def test_snapshots_hold_whole_averages(strategy: str, offload: bool, tmp_path: Path) -> None:
    run = {**RUN, "strategy": strategy, "posthoc_ema_offload": offload}
    alone = {**RUN, "strategy": "torch", "gradient_accumulation_steps": 2}
    (expected,) = train(tmp_path / "alone", [alone])
    whole = run_on_ranks(2, train, tmp_path / "both", [run])
    for rank in range(2):
        for name, value in expected["average"].items():
            found = whole[rank][0]["average"][name]
            torch.testing.assert_close(found, value, rtol=1e-9, atol=1e-12)
    directory = tmp_path / "both" / "0"
    assert [snapshot.step for snapshot in list_snapshots(directory)] == [3, 6, 7]
    made = dict(synthesised(plan_synthesis(directory, 0.08, force=True)))
    ours = dict(synthesised(plan_synthesis(tmp_path / "alone" / "0", 0.08, force=True)))
    assert made.keys() == ours.keys()
    for name, value in ours.items():
        torch.testing.assert_close(made[name], value, rtol=1e-9, atol=1e-12)
    before = (directory / FOLDER / "step-00000007" / "sigma-rel-0.1.safetensors").read_bytes()
    again = run_on_ranks(2, resume, directory, 4, run)
    for rank in range(2):
        assert equal(again[rank]["average"], whole[rank][0]["average"])
    after = (directory / FOLDER / "step-00000007" / "sigma-rel-0.1.safetensors").read_bytes()
    assert after == before
