"""A frozen base is on disk once, and every checkpoint has it all the same."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from voicehub.checkpoints.layout import FROZEN_FILE, MODEL_FILE
from voicehub.checkpoints.reader import open_checkpoint
from voicehub.errors import CheckpointCorruptError
from voicehub.trainer.callbacks import TrainerCallback

SAVING: dict[str, Any] = {
    "max_steps": 4,
    "save_strategy": "steps",
    "save_steps": 1,
    "freeze": ["hidden"],
    "optim": "sgd",
}


def inodes(run: Path) -> list[int]:
    return [(run / f"checkpoint-{step}" / FROZEN_FILE).stat().st_ino for step in (1, 2, 3, 4)]


class Settle(TrainerCallback):
    """Waits for each checkpoint, and does something after the one of step 2."""

    def __init__(self, action: Any = None) -> None:
        self.action = action

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        context["trainer"]._run.saver.settle(wait=True)
        if state.global_step == 3 and self.action is not None:
            self.action(context["trainer"])


def test_the_base_is_written_once_and_read_with_each_checkpoint(toy: Any) -> None:
    trainer = toy.run(trainer={"callbacks": [Settle()]}, **SAVING)
    assert len(set(inodes(trainer.run_dir))) == 1
    alone = toy.path / "copied" / "checkpoint-4"
    shutil.copytree(trainer.run_dir / "checkpoint-4", alone)
    stored = open_checkpoint(alone)
    assert stored.has_file(FROZEN_FILE) and stored.has_file(MODEL_FILE)
    expected = toy.weights(trainer.model)
    tensors = stored.tensors()
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)
    resumed = toy.run(
        resume=trainer.run_dir / "checkpoint-2", output_dir=str(toy.path / "resumed"), **SAVING
    )
    final = toy.weights(resumed.model)
    assert all(torch.equal(final[name], expected[name]) for name in expected)


def test_rotation_takes_names_away_not_the_base(toy: Any) -> None:
    trainer = toy.run(trainer={"callbacks": [Settle()]}, save_total_limit=1, **SAVING)
    [left] = trainer.run_dir.glob("checkpoint-*")
    assert (left / FROZEN_FILE).stat().st_nlink == 1
    assert "hidden.weight" in open_checkpoint(left).tensors()


def test_frozen_weights_that_a_recipe_moves_by_hand_are_stored_as_they_are(toy: Any) -> None:
    def move(trainer: Any) -> None:
        with torch.no_grad():
            trainer.model.hidden.bias.add_(1.0)

    trainer = toy.run(trainer={"callbacks": [Settle(move)]}, **SAVING)
    first, second, third, fourth = inodes(trainer.run_dir)
    assert first == second != third == fourth
    before, after = (
        open_checkpoint(trainer.run_dir / f"checkpoint-{step}").tensors()["hidden.bias"]
        for step in (2, 3)
    )
    assert torch.equal(after, before + 1.0)


def test_a_damaged_base_is_not_handed_on(toy: Any) -> None:
    def damage(trainer: Any) -> None:
        with (trainer.run_dir / "checkpoint-2" / FROZEN_FILE).open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\xff")

    trainer = toy.run(trainer={"callbacks": [Settle(damage)]}, **SAVING)
    assert len(set(inodes(trainer.run_dir))) == 2
    with pytest.raises(CheckpointCorruptError, match=FROZEN_FILE):
        open_checkpoint(trainer.run_dir / "checkpoint-2")
    open_checkpoint(trainer.run_dir / "checkpoint-3")


def test_without_links_the_base_is_written_again(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    trainer = toy.run(trainer={"callbacks": [Settle()]}, **SAVING)
    assert len(set(inodes(trainer.run_dir))) == 4
    open_checkpoint(trainer.run_dir / "checkpoint-4")


def test_what_is_frozen_for_a_while_is_trained(toy: Any) -> None:
    scheduled = {**SAVING, "freeze": [{"pattern": "hidden", "until_step": 2}]}
    trainer = toy.run(**scheduled)
    assert not (trainer.run_dir / "checkpoint-1" / FROZEN_FILE).exists()
