"""What a callback asks for on one rank, in whatever event, all ranks do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rank_attacks import asked

from voicehub.testing.ranks import run_on_ranks

RUN: dict[str, Any] = {
    "recipe": "gan",
    "size": 16,
    "per_device_train_batch_size": 2,
    "max_steps": -1,
    "num_train_epochs": 2,
    "logging_steps": 1,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "steps",
    "save_steps": 2,
}
#: Events in which a callback asks to stop, and the updates of a run in which it does.
STOPS = {
    "on_train_begin": 0,
    "on_epoch_begin": 1,
    "on_epoch_end": 4,
    "on_step_begin": 1,
    "on_pre_optimizer_step": 1,
    "on_step_end": 1,
    "on_evaluate": 2,
    "on_prediction_step": 2,
    "on_log": 1,
    "on_save": 2,
}


def test_a_callback_that_stops_on_one_rank_stops_all(tmp_path: Path) -> None:
    cases = [{"event": event, "rank": 1, "what": "should_training_stop"} for event in STOPS]
    ranks = run_on_ranks(2, asked, tmp_path / "two", cases, {**RUN, "strategy": "ddp"})
    for rank in ranks:
        assert dict(zip(STOPS, (found["steps"] for found in rank), strict=True)) == STOPS
    alone = [{**case, "rank": 0} for case in cases]
    one = asked(tmp_path / "one", alone, {**RUN, "gradient_accumulation_steps": 2})
    assert [found["steps"] for found in one] == list(STOPS.values())


@pytest.mark.parametrize("what", ["should_save", "should_evaluate"])
def test_what_a_callback_asks_for_on_one_rank_all_ranks_do(what: str, tmp_path: Path) -> None:
    """At the same step, in an event after which other things may be due, too."""
    events = ["on_step_end", "on_log", "on_evaluate", "on_epoch_end"]
    cases = [{"event": event, "rank": 1, "what": what} for event in events]
    run = {**RUN, "eval_steps": 3, "save_steps": 5}
    ranks = run_on_ranks(2, asked, tmp_path / "two", cases, {**run, "strategy": "ddp"})
    alone = [{**case, "rank": 0} for case in cases]
    one = asked(tmp_path / "one", alone, {**run, "gradient_accumulation_steps": 2})
    for rank in ranks:
        assert [found["did"] for found in rank] == [found["did"] for found in one]
