"""What goes wrong on one rank happens to all: they skip, retry or stop together."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_tasks import (
    UNHURRIED,
    fails_at_the_start,
    in_overflow,
    in_trouble,
    nothing,
    train,
    with_joint_statistics,
)

from voicehub.strategies.failure_watch import WatchLimits
from voicehub.testing.ranks import RankPool, pool_of, run_on_ranks

RUN: dict[str, Any] = {
    "per_device_train_batch_size": 2,
    "max_steps": 5,
    "strategy": "ddp",
    "ddp_timeout": UNHURRIED,
}
#: The watch of a rank ends it after so many seconds, by rank: one that a test wants to end by
#: itself has all the time it needs on a busy machine, one that waits for ever has none.
PATIENT = WatchLimits(beat=0.1, silence=600.0, grace=600.0)
QUICK = WatchLimits(beat=0.1, silence=600.0, grace=0.3)
BY_THEMSELVES = (PATIENT, PATIENT)
#: The first task in a world decides how long its ranks wait: these join one of their own.
LONG = {**RUN, "ddp_timeout": 60.0}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_loss_that_is_not_finite_on_one_rank_is_skipped_by_all(
    strategy: str, tmp_path: Path
) -> None:
    trouble = {"kind": "nan", "rank": 1, "forward": 2}
    run = {**RUN, "strategy": strategy}
    first, second = run_on_ranks(2, in_trouble, tmp_path, trouble, run)
    for found in (first, second):
        assert (found["steps"], found["skipped"]) == (5, 1)
    assert first["losses"] == second["losses"]
    assert all(torch.equal(first["weights"][n], second["weights"][n]) for n in first["weights"])
    ids = [len(row) for row in first["rows"]]
    assert ids  # the rows were logged


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_gradient_that_overflows_on_one_rank_is_skipped_by_all(
    strategy: str, tmp_path: Path
) -> None:
    """And all halve the scale of the loss, as one process does."""
    trouble = {"kind": "overflow", "rank": 1, "forward": 2}
    run = {**RUN, "strategy": strategy}
    first, second = run_on_ranks(2, in_overflow, tmp_path, trouble, run)
    for found in (first, second):
        assert (found["steps"], found["skipped"], found["scale"]) == (5, 1, 512.0)
    assert first["losses"] == second["losses"]
    assert all(torch.equal(first["weights"][n], second["weights"][n]) for n in first["weights"])


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_statistics_over_all_ranks_are_refused(strategy: str, tmp_path: Path) -> None:
    """A rank without a micro-batch would leave the others waiting in a forward."""
    run = {**RUN, "strategy": strategy}
    for said in run_on_ranks(2, with_joint_statistics, tmp_path, run):
        assert "The module '1' is a SyncBatchNorm" in said


def test_running_out_of_memory_on_one_rank_halves_the_batches_of_all(tmp_path: Path) -> None:
    """And the updates are those of a run in which there was room."""
    run = {**RUN, "per_device_train_batch_size": 4}
    trouble = {"kind": "memory", "rank": 1, "forward": 0, "largest": 2}
    halved = run_on_ranks(2, in_trouble, tmp_path / "a", trouble, {**run, "oom_retry_halves": True})
    roomy = run_on_ranks(2, in_trouble, tmp_path / "b", {**trouble, "largest": 99}, run)
    for rank in range(2):
        for name, value in roomy[rank]["weights"].items():
            torch.testing.assert_close(halved[rank]["weights"][name], value, rtol=1e-9, atol=1e-12)


def test_halves_are_refused_where_a_forward_is_a_joint_act(tmp_path: Path) -> None:
    """A rank that ran out of memory would wait for others that wait for it."""
    trouble = {"kind": "memory", "rank": 1, "forward": 0, "largest": 1}
    run = {**RUN, "strategy": "fsdp", "oom_retry_halves": True}
    for kind, text in pool_of(2).outcomes(in_trouble, tmp_path, trouble, run):
        assert kind == "ConfigurationError" and "oom_retry_halves=True is for" in text


def test_a_rank_without_any_batch_takes_part(tmp_path: Path) -> None:
    """One micro-batch in all: the second rank never has one."""
    shared = {"recipe": "plain", "size": 2, "num_train_epochs": 3, "max_steps": -1}
    for strategy in ("ddp", "fsdp"):
        run = {**shared, "per_device_train_batch_size": 2, "strategy": strategy}
        first, second = (found[0] for found in run_on_ranks(2, train, tmp_path / strategy, [run]))
        assert first["steps"] == second["steps"] == 3
        assert all(torch.equal(first["weights"][n], second["weights"][n]) for n in first["weights"])


def test_an_exception_on_one_rank_ends_all_with_its_text(tmp_path: Path) -> None:
    trouble = {"kind": "error", "rank": 1, "forward": 3}
    first, second = pool_of(2).outcomes(in_trouble, tmp_path, trouble, RUN, BY_THEMSELVES)
    assert second == ("LookupError", "the tape is torn")
    assert first[0] == "RankFailedError"
    assert "Rank 1 failed first, with LookupError: the tape is torn" in first[1]


def test_an_exception_in_the_middle_of_a_joint_forward_ends_all(tmp_path: Path) -> None:
    trouble = {"kind": "error", "rank": 1, "forward": 3}
    run = {**RUN, "strategy": "fsdp"}
    first, second = pool_of(2).outcomes(in_trouble, tmp_path, trouble, run, (QUICK, PATIENT))
    assert second == ("LookupError", "the tape is torn")
    # Ended by its own watch, which prints what rank 1 has recorded; or rank 1 was gone before.
    assert first == 1 or first[0] == "RankFailedError"


def test_an_exception_before_the_first_update_ends_all(tmp_path: Path) -> None:
    """The others wait for the run directory, for hours if need be."""
    pool_of(2).outcomes(nothing)
    first, second = pool_of(2).outcomes(fails_at_the_start, tmp_path, RUN, (QUICK, PATIENT))
    assert second == ("LookupError", "the index is torn")
    assert first == 1 or first[0] == "RankFailedError"  # whichever of its threads is first


def test_memory_that_cannot_be_had_ends_all(tmp_path: Path) -> None:
    trouble = {"kind": "memory", "rank": 0, "forward": 0, "largest": 1}
    first, second = pool_of(2).outcomes(in_trouble, tmp_path, trouble, RUN, BY_THEMSELVES)
    assert first[0] == "StepOutOfMemoryError" and "micro-batch of 2 samples" in first[1]
    assert second[1].startswith("Rank 0: Out of memory in phase 'default'")


def test_a_rank_that_dies_ends_the_others(tmp_path: Path) -> None:
    pool_of(2).outcomes(nothing)
    trouble = {"kind": "exit", "rank": 1, "forward": 3}
    first, second = pool_of(2).outcomes(in_trouble, tmp_path, trouble, LONG, BY_THEMSELVES)
    assert second == 7
    assert first[0] == "RankStalledError"
    assert "the sum of gradients" in first[1] or "the sums of phase" in first[1]


def test_a_rank_that_stands_still_is_ended_with_the_others(tmp_path: Path) -> None:
    pool_of(2).outcomes(nothing)
    trouble = {"kind": "stall", "rank": 1, "forward": 3}
    first, second = pool_of(2).outcomes(in_trouble, tmp_path, trouble, LONG, (PATIENT, QUICK))
    assert first[0] == "RankStalledError" and "did not come within 1 s (ddp_timeout)" in first[1]
    assert second == 1  # ended by its own watch, once the first had told of the failure


def test_temporary_files_of_ranks_go_with_them() -> None:
    """Ranks are killed, so that no finaliser of their own would remove these."""
    pool = RankPool(1)
    try:
        (made,) = pool.run(tempfile.mkdtemp)
        assert Path(made).is_dir()
    finally:
        pool.close()
    assert not Path(made).parent.exists()
