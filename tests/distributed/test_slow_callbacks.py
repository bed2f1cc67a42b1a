"""Callbacks may take longer on rank 0, which reports, than the others wait for each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rank_tasks import nothing
from slow_callbacks import with_slow_callbacks

from voicehub.testing.ranks import pool_of

RUN: dict[str, Any] = {
    "recipe": "plain",
    "size": 8,
    "per_device_train_batch_size": 2,
    "num_train_epochs": 2,
    "max_steps": -1,
    "logging_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "steps",
    "save_steps": 3,
}
#: Events, and how the others wait for the end of a callback of it.
EVENTS = {
    "on_train_begin": "on_train_begin",
    "on_epoch_begin": "barrier",
    "on_step_end": "on_step_end",
    "on_log": "on_log",
    "on_evaluate": "on_evaluate",
    "on_epoch_end": "on_epoch_end",
    "on_save": "barrier",
}


@pytest.mark.parametrize(("strategy", "link"), [("ddp", True), ("fsdp", False)])
def test_the_others_wait_for_a_callback(strategy: str, link: bool, tmp_path: Path) -> None:
    run = {**RUN, "strategy": strategy}
    pool = pool_of(2)
    pool.outcomes(nothing)
    first, second = pool.outcomes(with_slow_callbacks, tmp_path, list(EVENTS), run, link)

    assert isinstance(first, dict) and isinstance(second, dict), (first, second)
    assert first["steps"] == second["steps"] == 4
    assert all(torch.equal(first["weights"][n], second["weights"][n]) for n in first["weights"])
    assert list(second["how"]) == list(EVENTS)
    for event, how in EVENTS.items():
        said = f"Rank 1 waits for rank 0, at callbacks of {how}." if how != "barrier" else how
        assert second["how"][event] == said
