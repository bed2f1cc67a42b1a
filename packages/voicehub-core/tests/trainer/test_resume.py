"""A resumed run equals the uninterrupted one, bit for bit, or is refused with the reason."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from voicehub.data.keyed_random import numpy_generator
from voicehub.errors import CheckpointCorruptError, CheckpointMismatchError
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.resume import check_same_run
from voicehub.trainer.trainer import Trainer

STEPS = 9  # of 22 items in micro-batches of 3, two to a window: 4 windows an epoch


class Interrupt(Exception):
    """Stands for the process being killed."""


class StopAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        if state.global_step == self.step:
            raise Interrupt


class KeyedFrames:
    """Adds noise keyed by sample, epoch and draw, as augmentations do."""

    def __init__(self, frames: Any) -> None:
        self.frames = frames

    def __len__(self) -> int:
        return len(self.frames)

    def get_item(self, index: int, key: Any) -> dict[str, Tensor]:
        item = dict(self.frames[index])
        noise = numpy_generator(*key, "noise").normal(size=item["features"].shape)
        item["features"] = item["features"] + torch.from_numpy(noise).to(torch.float32)
        return item


class GlobalFrames:
    """Draws from Python's, NumPy's and torch's global random state."""

    def __init__(self, frames: Any) -> None:
        self.frames = frames

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        item = dict(self.frames[index])
        shift = random.random() + np.random.rand() + torch.rand(())
        return {**item, "features": item["features"] + shift}


def run(toy: Any, run_dir: Path, data: Any, *, workers: int = 0, stop: int | None = None,
        resume: Any = None, **settings: Any) -> Trainer:  # fmt: skip
    torch.manual_seed(0)
    defaults: dict[str, Any] = {
        "output_dir": str(run_dir),
        "max_steps": STEPS,
        "per_device_train_batch_size": 3,
        "gradient_accumulation_steps": 2,
        "save_strategy": "steps",
        "save_steps": 1,
        "logging_steps": 2,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 3,
        "dataloader_num_workers": workers,
    }
    return toy.run(  # type: ignore[no-any-return]
        model=toy.FrameRegressor(dropout=0.2),
        train=data,
        trainer={"callbacks": [StopAt(stop)] if stop is not None else []},
        resume=resume,
        **{**defaults, **settings},
    )


def results(trainer: Trainer) -> tuple[dict[str, Tensor], Any, list[dict[str, Any]]]:
    """Weights, optimizer state, and log rows without what tells the time."""
    timed = ("time", "samples_per_second", "data_wait", "eval_runtime", "eval_samples_per_second")
    rows = [
        {key: value for key, value in json.loads(line).items() if key not in timed}
        for line in (trainer.run_dir / "metrics.jsonl").read_text().splitlines()
    ]
    return trainer.adapter.state_dict(), trainer.graph.optimizers.state_dict(), rows


def same(first: Any, second: Any) -> bool:
    """Equality of nested state, tensors bit by bit."""
    if isinstance(first, Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def assert_equal(first: Trainer, second: Trainer) -> None:
    weights, optimizer, rows = results(first)
    other_weights, other_optimizer, other_rows = results(second)
    assert all(torch.equal(value, other_weights[name]) for name, value in weights.items())
    assert same(optimizer, other_optimizer)
    assert rows == other_rows


@pytest.mark.parametrize("kind", [KeyedFrames, GlobalFrames])
@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5, 8])
def test_resume_is_bit_exact_at_every_step(toy: Any, tmp_path: Path, kind: Any, stop: int) -> None:
    data = kind(toy.Frames(22))
    whole = run(toy, tmp_path / "whole", data)
    with pytest.raises(Interrupt):
        run(toy, tmp_path / "cut", data, stop=stop, save_steps=2 if stop > 2 else 1)
    if stop == 1:
        resume: Any = None
    else:
        resume = True
    resumed = run(toy, tmp_path / "cut", data, resume=resume)
    assert resumed.state.global_step == STEPS
    assert_equal(whole, resumed)


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0)])
def test_the_number_of_workers_may_change(
    toy: Any, tmp_path: Path, before: int, after: int
) -> None:
    data = GlobalFrames(toy.Frames(22))
    whole = run(toy, tmp_path / "whole", data)
    with pytest.raises(Interrupt):
        run(toy, tmp_path / "cut", data, stop=5, workers=before)
    assert_equal(whole, run(toy, tmp_path / "cut", data, workers=after, resume=True))


@pytest.mark.parametrize("stop", [4, 5, 8])
def test_epoch_events_happen_once(toy: Any, tmp_path: Path, stop: int) -> None:
    """A checkpoint of an epoch's last step lies before the evaluation at the epoch's end."""

    def evaluated(run_dir: Path, **options: Any) -> Trainer:
        torch.manual_seed(0)
        stop_at = options.pop("stop", None)
        return toy.run(  # type: ignore[no-any-return]
            model=toy.FrameRegressor(dropout=0.2),
            train=toy.Frames(22),
            trainer={
                "eval_dataset": toy.Frames(3, seed=1),
                "callbacks": [StopAtEvaluation(stop_at)] if stop_at else [],
            },
            output_dir=str(run_dir),
            num_train_epochs=2,
            per_device_train_batch_size=3,
            gradient_accumulation_steps=2,
            save_strategy="steps",
            save_steps=1,
            eval_strategy="epoch",
            **options,
        )

    whole = evaluated(tmp_path / "whole")
    with pytest.raises(Interrupt):
        evaluated(tmp_path / "cut", stop=stop)
    resumed = evaluated(tmp_path / "cut", resume=True)
    assert_equal(whole, resumed)
    assert sum("eval_loss" in row for row in resumed.state.log_history) == 2


class StopAtEvaluation(StopAt):
    """Killed in the middle of the evaluation that follows a step, or at the step."""

    def on_prediction_step(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        if state.global_step == self.step:
            raise Interrupt

    def on_step_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        if state.global_step == self.step:
            raise Interrupt

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        pass


def test_a_kill_at_the_same_place_twice(toy: Any, tmp_path: Path) -> None:
    data = KeyedFrames(toy.Frames(22))
    whole = run(toy, tmp_path / "whole", data)
    for stop in (3, 4, 6):
        with pytest.raises(Interrupt):
            run(toy, tmp_path / "cut", data, stop=stop, resume=stop > 3)
    assert_equal(whole, run(toy, tmp_path / "cut", data, resume=True))


def test_resuming_a_finished_run_changes_nothing(toy: Any, tmp_path: Path) -> None:
    data = toy.Frames(22)
    whole = run(toy, tmp_path / "run", data)
    again = run(toy, tmp_path / "run", data, resume=True)
    assert_equal(whole, again)


def test_an_older_checkpoint_is_resumed_past_newer_ones(toy: Any, tmp_path: Path) -> None:
    data = KeyedFrames(toy.Frames(22))
    whole = run(toy, tmp_path / "run", data)
    expected = results(whole)
    newest = tmp_path / "run" / f"checkpoint-{STEPS}" / "model_state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x00")
    with pytest.raises(CheckpointCorruptError, match=r"model_state\.safetensors"):
        run(toy, tmp_path / "run", data, resume=True)
    again = run(toy, tmp_path / "run", data, resume=str(tmp_path / "run" / "checkpoint-4"))
    assert results(again)[2] == expected[2]
    assert run(toy, tmp_path / "run", data, resume=True).state.global_step == STEPS


def test_nothing_to_resume(toy: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No checkpoint found"):
        run(toy, tmp_path / "empty", toy.Frames(22), resume=True)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        run(toy, tmp_path / "empty", toy.Frames(22), resume=str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        ({"max_steps": 12}, "schedule.max_steps: checkpoint=9, current=12"),
        ({"learning_rate": 0.02}, "initial_lr"),
        ({"seed": 7}, "seed"),
        ({"data_seed": 7}, "data.seed"),
        ({"max_grad_norm": 0.5}, "max_grad_norm"),
        ({"weight_decay": 0.1}, "weight_decay"),
        ({"gradient_accumulation_steps": 1}, "accumulation"),
        ({"warmup_steps": 2}, "warmup"),
        ({"optim": "sgd"}, "torch.optim.sgd.SGD"),
        ({"bf16": True}, "precision.bf16"),
    ],
)
def test_another_plan_is_refused_by_name(
    toy: Any, tmp_path: Path, change: dict[str, Any], entry: str
) -> None:
    data = toy.Frames(22)
    with pytest.raises(Interrupt):
        run(toy, tmp_path / "run", data, stop=3)
    with pytest.raises(CheckpointMismatchError) as refused:
        run(toy, tmp_path / "run", data, resume=True, **change)
    assert entry in str(refused.value)
    assert "load_weights" in str(refused.value)


def test_intervals_and_workers_may_change(toy: Any, tmp_path: Path) -> None:
    data = toy.Frames(22)
    with pytest.raises(Interrupt):
        run(toy, tmp_path / "run", data, stop=3)
    resumed = run(
        toy, tmp_path / "run", data, resume=True, workers=1, logging_steps=1, save_steps=100
    )
    assert resumed.state.global_step == STEPS


def test_other_data_dropout_and_collator_are_refused(toy: Any, tmp_path: Path) -> None:
    with pytest.raises(Interrupt):
        run(toy, tmp_path / "run", toy.Frames(22), stop=3)
    with pytest.raises(CheckpointMismatchError, match="length"):
        run(toy, tmp_path / "run", toy.Frames(23), resume=True)

    def resumed(**options: Any) -> None:
        settings = {
            "output_dir": str(tmp_path / "run"), "max_steps": STEPS, "save_strategy": "steps",
            "per_device_train_batch_size": 3, "gradient_accumulation_steps": 2,
            "lr_scheduler_type": "cosine", "warmup_steps": 3, "resume": True,
        }  # fmt: skip
        toy.run(train=toy.Frames(22), **{**settings, **options})

    with pytest.raises(CheckpointMismatchError, match=r"Dropout\(p=0\.5"):
        resumed(model=toy.FrameRegressor(dropout=0.5))
    other = {"data_collator": lambda items: toy.collate(items)}
    with pytest.raises(CheckpointMismatchError, match="collator"):
        resumed(model=toy.FrameRegressor(dropout=0.2), trainer=other)


class Counting(TrainerCallback):
    def __init__(self) -> None:
        self.steps = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.steps += 1

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


def test_callbacks_get_their_state_back_and_belong_to_the_plan(toy: Any, tmp_path: Path) -> None:
    def counted(*callbacks: Any, **options: Any) -> None:
        torch.manual_seed(0)
        toy.run(
            trainer={"callbacks": list(callbacks)}, output_dir=str(tmp_path / "run"),
            max_steps=4, save_strategy="steps", save_steps=1, **options,
        )  # fmt: skip

    with pytest.raises(Interrupt):
        counted(Counting(), StopAt(3))
    counter = Counting()
    counted(counter, resume=True)
    assert counter.steps == 4
    with pytest.raises(CheckpointMismatchError, match="stateful_callbacks"):
        counted(resume=True)


def test_a_warm_start_takes_the_weights_alone(toy: Any, tmp_path: Path) -> None:
    first = run(toy, tmp_path / "run", toy.Frames(22))
    fresh = Trainer(
        model=toy.FrameRegressor(), args=toy.arguments(max_steps=1),
        data_collator=toy.collate, train_dataset=toy.Frames(4),
    )  # fmt: skip
    fresh.load_weights(tmp_path / "run" / f"checkpoint-{STEPS}")
    for name, value in first.adapter.state_dict().items():
        assert torch.equal(fresh.adapter.state_dict()[name], value)
    assert fresh.train().global_step == 1


class StopGently(TrainerCallback):
    """As Ctrl-C in the command line: ends the run after an update."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        control.should_training_stop |= state.global_step == self.step


def test_a_run_that_was_stopped_logs_the_same_when_it_goes_on(toy: Any, tmp_path: Path) -> None:
    def part(name: str, *callbacks: Any, **options: Any) -> Trainer:
        torch.manual_seed(0)
        return toy.run(  # type: ignore[no-any-return]
            model=toy.FrameRegressor(dropout=0.2),
            train=toy.Frames(22),
            trainer={"callbacks": list(callbacks)},
            output_dir=str(tmp_path / name),
            max_steps=8,
            save_strategy="steps",
            save_steps=100,
            logging_steps=5,
            **options,
        )

    whole = part("whole")
    part("cut", StopGently(3))
    assert_equal(whole, part("cut", resume=True))


def test_a_directory_of_another_run_is_refused(toy: Any, tmp_path: Path) -> None:
    data = toy.Frames(22)
    run(toy, tmp_path / "first", data)
    run(toy, tmp_path / "second", data)
    metrics = (tmp_path / "second" / "metrics.jsonl").read_text()
    with pytest.raises(FileExistsError, match="of run"):
        run(toy, tmp_path / "second", data, resume=str(tmp_path / "first" / "checkpoint-4"))
    assert (tmp_path / "second" / "metrics.jsonl").read_text() == metrics


def test_a_best_checkpoint_left_behind_is_forgotten(toy: Any, tmp_path: Path) -> None:
    best = {"eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True}

    def part(name: str, **options: Any) -> Trainer:
        torch.manual_seed(0)
        return toy.run(  # type: ignore[no-any-return]
            model=toy.FrameRegressor(),
            train=toy.Frames(22),
            trainer={"eval_dataset": toy.Frames(3, seed=5)},
            output_dir=str(tmp_path / name),
            max_steps=6,
            save_strategy="steps",
            save_steps=1,
            **best,
            **options,
        )

    part("first")
    moved = part("second", resume=str(tmp_path / "first" / "checkpoint-4"))
    assert moved.state.best_model_checkpoint in ("checkpoint-5", "checkpoint-6")


def test_a_changed_setting_is_named_before_the_layers_that_follow_from_it():
    def manifest(size: int) -> dict[str, Any]:
        layers = {f"Linear({size}, {number})": 1 for number in range(9)}
        recipe = {"modules": layers, "network": {"size": size}}
        keys = dict.fromkeys(("model_type", "adapter", "optimizer_names", "strategy"), "x")
        return {**keys, "resume_signature": {"recipe": recipe}}

    checkpoint: Any = SimpleNamespace(path=Path("checkpoint-3"), manifest=manifest(4))
    with pytest.raises(CheckpointMismatchError, match=r"network\.size: checkpoint=4, current=8"):
        check_same_run(checkpoint, manifest(8))
