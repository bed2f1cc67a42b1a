"""Names, and finding checkpoints by them."""

from __future__ import annotations

import pytest

from voicehub.checkpoints.layout import (
    checkpoint_name,
    checkpoint_step,
    is_staging_name,
    latest_checkpoint,
    list_checkpoints,
    staging_name,
)


def complete(path):
    path.mkdir(parents=True)
    (path / ".complete").touch()
    return path


@pytest.mark.parametrize("step", [0, 7, 10, 123456])
def test_names_and_steps_are_inverse(step):
    assert checkpoint_step(checkpoint_name(step)) == step
    assert checkpoint_step(staging_name(step)) is None
    assert is_staging_name(staging_name(step))
    assert staging_name(step) != staging_name(step)


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint-",
        "checkpoint-x",
        "checkpoint-07",
        "checkpoint--1",
        "checkpoint-1.damaged-ab",
        "checkpoint-1 ",
        "my-checkpoint-1",
        "checkpoint-1\n",
        "checkpoint-\u0661",
    ],
)
def test_other_names_are_no_checkpoints(name):
    assert checkpoint_step(name) is None
    assert not is_staging_name(name)


def test_checkpoints_are_ordered_by_number(tmp_path):
    made = {step: complete(tmp_path / f"checkpoint-{step}") for step in (9, 100, 20)}
    (tmp_path / "checkpoint-200").mkdir()  # never completed
    (tmp_path / "checkpoint-300").write_text("a file")
    complete(tmp_path / staging_name(400))
    complete(tmp_path / "final-model")
    assert list_checkpoints(tmp_path) == [made[9], made[20], made[100]]
    assert latest_checkpoint(tmp_path) == made[100]


def test_an_empty_or_missing_run_directory_holds_none(tmp_path):
    for run_dir in (tmp_path, tmp_path / "missing"):
        assert list_checkpoints(run_dir) == []
        assert latest_checkpoint(str(run_dir)) is None
