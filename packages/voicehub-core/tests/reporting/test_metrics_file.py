"""metrics.jsonl: what is written, and what is left of it after a kill and a resume."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicehub.trainer.metrics_file import MetricsFile, read_metrics

Build = Callable[..., Any]


def file_of(run: Any) -> Path:
    return Path(run.args.output_dir) / "metrics.jsonl"


def test_each_row_is_on_disk_as_soon_as_it_is_logged(watched: Build) -> None:
    run = watched(MetricsFile())
    run.fire("on_train_begin")
    run.log(1, loss=0.1 + 0.2)
    (row,) = (json.loads(line) for line in file_of(run).read_text().splitlines())
    assert row["loss"] == 0.1 + 0.2  # bit for bit
    assert row["step"] == 1 and row["epoch"] == 0.1


def test_numbers_that_are_not_finite_stay_strict_json(watched: Build) -> None:
    run = watched(MetricsFile())
    run.fire("on_train_begin")
    run.log(1, loss=math.nan, grad_norm=math.inf, other=-math.inf)
    text = file_of(run).read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    (row,) = read_metrics(file_of(run))
    assert math.isnan(row["loss"])
    assert row["grad_norm"] == math.inf and row["other"] == -math.inf


def test_a_row_after_the_end_is_still_written(watched: Build) -> None:
    run = watched(MetricsFile())
    run.fire("on_train_begin")
    run.log(1, loss=1.0)
    run.fire("on_train_end")
    run.log(1, eval_loss=2.0)
    assert [row.get("eval_loss") for row in read_metrics(file_of(run))] == [None, 2.0]


def test_only_the_primary_process_writes(watched: Build) -> None:
    run = watched(MetricsFile())
    run.state.is_world_process_zero = False
    run.fire("on_train_begin")
    run.log(1, loss=1.0)
    assert not file_of(run).exists()


def test_a_resume_drops_what_is_done_again_and_the_torn_line(watched: Build) -> None:
    first = watched(MetricsFile())
    first.fire("on_train_begin")
    for step in range(1, 6):
        first.log(step, loss=float(step))
    with file_of(first).open("a") as file:
        file.write('{"step": 6, "los')
    before = file_of(first).read_text().splitlines()
    resumed = watched(MetricsFile())
    resumed.state.global_step = 3
    resumed.state.log_history = first.state.log_history[:3]
    resumed.fire("on_train_begin", resumed_from=Path("checkpoint-3"))
    assert file_of(resumed).read_text().splitlines() == before[:3]
    resumed.log(4, loss=4.0)
    assert [row["step"] for row in read_metrics(file_of(resumed))] == [1, 2, 3, 4]


def test_two_rows_of_one_step_are_told_apart(watched: Build) -> None:
    """A checkpoint may lie between the loss and the evaluation of the same step."""
    first = watched(MetricsFile())
    first.fire("on_train_begin")
    first.log(2, loss=1.0)
    first.log(2, eval_loss=3.0)
    resumed = watched(MetricsFile())
    resumed.state.global_step = 2
    resumed.state.log_history = first.state.log_history[:1]
    resumed.fire("on_train_begin", resumed_from=Path("checkpoint-3"))
    resumed.log(2, eval_loss=3.0)
    rows = read_metrics(file_of(resumed))
    assert [("loss" in row, "eval_loss" in row) for row in rows] == [(True, False), (False, True)]


def test_rows_that_were_lost_come_back_from_the_checkpoint(watched: Build) -> None:
    run = watched(MetricsFile())
    run.state.global_step = 2
    run.state.log_history = [
        {"loss": 1.5, "epoch": 0.1, "step": 1},
        {"loss": 1.25, "epoch": 0.2, "step": 2},
    ]
    file_of(run).parent.mkdir(parents=True)
    run.fire("on_train_begin", resumed_from=Path("checkpoint-2"))
    assert [row["loss"] for row in read_metrics(file_of(run))] == [1.5, 1.25]


def test_a_new_run_keeps_the_old_file(watched: Build) -> None:
    first = watched(MetricsFile())
    first.fire("on_train_begin")
    first.log(1, loss=1.0)
    again = watched(MetricsFile())
    again.fire("on_train_begin")
    assert read_metrics(file_of(again)) == []
    previous = file_of(again).with_name("metrics.previous.jsonl")
    assert [row["loss"] for row in read_metrics(previous)] == [1.0]


def test_a_missing_file_has_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "none.jsonl") == []
