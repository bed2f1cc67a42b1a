"""Checkpoints are written off the training thread, at most one at a time, and errors come back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from voicehub.checkpoints.reader import open_checkpoint
from voicehub.errors import CheckpointError
from voicehub.trainer import saving
from voicehub.trainer.callbacks import TrainerCallback


class Gate:
    """Stands in for the disk: holds every write back until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.running = 0
        self.most_running = 0
        self.commit = saving.commit
        monkeypatch.setattr(saving, "commit", self)

    def __call__(self, *arguments: Any) -> Path:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        assert self.opened.wait(timeout=600)
        try:
            return self.commit(*arguments)
        finally:
            self.running -= 1


class WeightsWhenSaved(TrainerCallback):
    """Remembers the weights at every ``on_save``; opens the gate at a later step."""

    def __init__(self, gate: Gate, open_at: int) -> None:
        self.gate, self.open_at = gate, open_at
        self.weights: dict[int, dict[str, torch.Tensor]] = {}
        self.steps_before_opening = 0

    def on_save(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        tensors = context["adapter"].state_dict()
        self.weights[state.global_step] = {n: v.clone() for n, v in tensors.items()}

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        if not self.gate.opened.is_set():
            self.steps_before_opening += 1
        if state.global_step == self.open_at:
            self.gate.opened.set()


def test_training_goes_on_and_what_is_stored_does_not_change(
    toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    watch = WeightsWhenSaved(gate, open_at=5)
    trainer = toy.run(
        trainer={"callbacks": [watch]}, max_steps=9, save_strategy="steps", save_steps=3
    )
    assert watch.steps_before_opening >= 4, "training waited for the disk"
    assert gate.most_running == 1
    assert sorted(watch.weights) == [3, 6, 9]
    for step, weights in watch.weights.items():
        stored = open_checkpoint(trainer.run_dir / f"checkpoint-{step}").tensors()
        assert all(torch.equal(stored[name], value) for name, value in weights.items())
    assert not torch.equal(watch.weights[3]["hidden.weight"], watch.weights[6]["hidden.weight"])


def test_an_error_of_the_disk_surfaces_at_the_next_step(
    toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    commit = saving.commit

    def fail_once(run_dir: Any, step: int, *rest: Any) -> Path:
        calls.append(step)
        if step == 4:
            raise CheckpointError("disk full: 12 MB needed, 1 MB free")
        return commit(run_dir, step, *rest)

    monkeypatch.setattr(saving, "commit", fail_once)
    with pytest.raises(CheckpointError, match="12 MB needed"):
        toy.run(max_steps=40, save_strategy="steps", save_steps=2, output_dir=str(toy.path / "r"))
    assert calls[:2] == [2, 4] and len(calls) <= 3
    assert open_checkpoint(toy.path / "r" / "checkpoint-2").step == 2


def test_a_failing_run_lets_the_write_in_flight_end(toy: Any) -> None:
    class Stop(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            if state.global_step == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        toy.run(
            trainer={"callbacks": [Stop()]}, max_steps=9, save_strategy="steps", save_steps=2,
            output_dir=str(toy.path / "r"),
        )  # fmt: skip
    assert open_checkpoint(toy.path / "r" / "checkpoint-2").step == 2
    assert not [p for p in (toy.path / "r").iterdir() if p.name.startswith(".")]
