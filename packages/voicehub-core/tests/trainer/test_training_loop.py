"""The loop: horizon, logging, skipped updates, best model, early stopping, second calls."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voicehub.errors import ConfigurationError, DataError, NonFiniteError
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.trainer import Trainer


class Recorder(TrainerCallback):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.skipped: list[Any] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.events.append("begin")

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.events.append(f"step {state.global_step}")

    def on_log(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        kind = "log" if "loss" in context["logs"] else "eval log"
        self.events.append(kind)

    def on_evaluate(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.events.append("evaluate")

    def on_save(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.events.append("save")

    def on_checkpoint_saved(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        assert (context["checkpoint"] / ".complete").exists()
        self.events.append("saved")

    def on_step_skipped(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.skipped.append((context["reason"], context["ids"]))

    def on_train_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.events.append("end")


def test_order_of_events_at_a_step(toy: Any) -> None:
    recorder = Recorder()
    toy.run(
        trainer={"eval_dataset": toy.Frames(3, seed=9), "callbacks": [recorder]},
        max_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        logging_steps=2,
    )
    at_the_second_step = ["log", "eval log", "evaluate", "save", "saved"]
    assert recorder.events == ["begin", "step 1", "step 2", *at_the_second_step, "end"]


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"num_train_epochs": 2, "per_device_train_batch_size": 4}, 6),  # 3 windows of 11 items
        (
            {"num_train_epochs": 2, "per_device_train_batch_size": 4, "dataloader_drop_last": True},
            4,
        ),
        ({"num_train_epochs": 1.5, "per_device_train_batch_size": 2}, 9),
        ({"max_steps": 7, "per_device_train_batch_size": 4}, 7),
        (
            {
                "num_train_epochs": 1,
                "per_device_train_batch_size": 2,
                "gradient_accumulation_steps": 4,
            },
            2,
        ),
    ],
)
def test_the_run_is_as_long_as_its_plan(toy: Any, settings: dict[str, Any], steps: int) -> None:
    trainer = toy.run(**settings)
    assert (trainer.state.global_step, trainer.state.max_steps) == (steps, steps)


class UnevenPlan:
    """An epoch has one batch more than the one before."""

    seed = 0

    def batches(self, epoch: int) -> list[list[int]]:
        return [[n] for n in range(epoch + 1)]

    def num_batches(self, epoch: int) -> int:
        return epoch + 1

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "uneven"}


def test_epochs_of_different_length_are_counted_one_by_one(toy: Any) -> None:
    trainer = toy.run(trainer={"train_plan": UnevenPlan()}, num_train_epochs=4)
    assert trainer.state.global_step == 1 + 2 + 3 + 4
    assert trainer.state.epoch == 4.0


def test_the_learning_rate_ends_at_zero_with_the_plan(toy: Any) -> None:
    trainer = toy.run(
        trainer={"train_plan": UnevenPlan()}, num_train_epochs=3, lr_scheduler_type="linear"
    )
    rates = [row["learning_rate"] for row in trainer.state.log_history if "loss" in row]
    assert rates[-1] == 0.0 and rates[0] == pytest.approx(0.01 * 5 / 6)


def test_a_warmup_longer_than_the_run_is_refused(toy: Any) -> None:
    with pytest.raises(ConfigurationError, match="not shorter than the run"):
        toy.run(max_steps=5, warmup_steps=5, lr_scheduler_type="linear")


def test_an_empty_data_set_is_refused(toy: Any) -> None:
    with pytest.raises(DataError, match="empty"):
        toy.run(train=toy.Frames(0))


def test_no_full_batch_is_refused(toy: Any) -> None:
    with pytest.raises(ConfigurationError, match="drop_last"):
        toy.run(per_device_train_batch_size=64, dataloader_drop_last=True)


def test_a_second_train_says_what_to_do(toy: Any) -> None:
    trainer = toy.run(max_steps=1)
    with pytest.raises(ConfigurationError, match="resume_from_checkpoint"):
        trainer.train()


def test_the_metrics_file_holds_every_log_row(toy: Any) -> None:
    trainer = toy.run(max_steps=3)
    lines = (trainer.run_dir / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert rows == trainer.state.log_history
    assert all(row["num_items"] > 0 and math.isfinite(row["grad_norm"]) for row in rows)


class PoisonedFrames(torch.utils.data.Dataset[dict[str, Any]]):
    """One item, number 5, makes the loss or the gradient NaN."""

    deterministic = True

    def __init__(self, frames: Any, poison: str) -> None:
        self.frames, self.poison = frames, poison

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item = dict(self.frames[index])
        item["index"] = index
        if index == 5 and self.poison == "loss":
            item["targets"] = item["targets"] * float("nan")
        return item


class NanGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, poisoned: bool) -> Tensor:
        ctx.poisoned = poisoned
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (grad * float("nan") if ctx.poisoned else grad), None


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_an_update_that_is_not_finite_is_skipped_and_named(toy: Any, poison: str) -> None:
    class Model(toy.FrameRegressor):  # type: ignore[misc, name-defined]
        def forward(self, poisoned: bool = False, **batch: Tensor) -> dict[str, Any]:
            output = super().forward(**batch)
            output["loss"] = NanGradient.apply(output["loss"], poisoned)
            return output

    def collate(items: list[dict[str, Any]]) -> dict[str, Any]:
        batch = toy.collate(items)
        indices = [item["index"] for item in items]
        batch["poisoned"] = poison == "gradient" and 5 in indices
        batch["batch_info"] = {"ids": [f"clip-{i}" for i in indices]}
        return batch

    recorder = Recorder()
    torch.manual_seed(0)
    model = Model()
    trainer = toy.run(
        model=model,
        train=PoisonedFrames(toy.Frames(12), poison),
        trainer={"data_collator": collate, "callbacks": [recorder]},
        per_device_train_batch_size=3,
        num_train_epochs=1,
    )
    assert trainer.state.global_step == 3 and trainer.state.skipped_steps == 1
    assert all(torch.isfinite(p).all() for p in model.parameters())
    reason, ids = recorder.skipped[0]
    assert "clip-5" in ids and len(ids) == 3
    assert "loss" in reason if poison == "loss" else "gradient norm" in reason
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses) == 3 and all(math.isfinite(loss) for loss in losses)


def test_too_many_skips_in_a_row_end_the_run(toy: Any) -> None:
    class Model(toy.FrameRegressor):  # type: ignore[misc, name-defined]
        def forward(self, **batch: Tensor) -> dict[str, Any]:
            output = super().forward(**batch)
            return {**output, "loss": output["loss"] * float("inf")}

    with pytest.raises(NonFiniteError, match="3 updates in a row"):
        toy.run(model=Model(), max_steps=50, max_nonfinite_steps=3)


class Scripted(nn.Module):
    """Its evaluation loss follows a script, whatever it learns."""

    def __init__(self, script: list[float]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.script = iter(script)

    def forward(self, features: Tensor, mask: Tensor, targets: Tensor) -> dict[str, Tensor]:
        if self.training:
            return {"loss": self.weight.sum() + 1.0}
        return {"loss": torch.tensor(next(self.script))}


def run_scripted(toy: Any, script: list[float], callbacks: Any = (), **settings: Any) -> Trainer:
    return toy.run(  # type: ignore[no-any-return]
        model=Scripted(script),
        trainer={"eval_dataset": toy.Frames(1), "callbacks": list(callbacks)},
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        optim="sgd",
        learning_rate=1.0,
        **settings,
    )


def test_the_best_weights_are_loaded_at_the_end(toy: Any) -> None:
    trainer = run_scripted(
        toy, [3.0, 1.0, 2.0, 2.5], max_steps=4, save_steps=1, load_best_model_at_end=True
    )
    assert trainer.state.best_metric == 1.0
    assert trainer.state.best_model_checkpoint == "checkpoint-2"
    assert trainer.model.weight.item() == -2.0


def test_a_new_best_between_save_steps_is_saved(toy: Any) -> None:
    trainer = run_scripted(
        toy, [3.0, 1.0, 2.0, 2.5], max_steps=4, save_steps=4, load_best_model_at_end=True
    )
    assert trainer.state.best_model_checkpoint == "checkpoint-2"
    assert trainer.model.weight.item() == -2.0


def test_rotation_keeps_the_best_and_the_newest(toy: Any) -> None:
    trainer = run_scripted(
        toy,
        [3.0, 1.0, 2.0, 2.5, 2.5],
        max_steps=5,
        save_steps=1,
        save_total_limit=1,
        load_best_model_at_end=True,
    )
    kept = sorted(p.name for p in trainer.run_dir.glob("checkpoint-*"))
    assert kept == ["checkpoint-2", "checkpoint-5"]


@pytest.mark.parametrize(("greater", "kept"), [(False, [2, 4, 7]), (True, [1, 6, 7])])
def test_the_best_few_are_kept(toy: Any, greater: bool, kept: list[int]) -> None:
    """Those of a run that was resumed in the middle as well; NaN is not among them."""
    script = [3.0, 1.0, float("nan"), 1.5, 2.0, 4.0, 2.5]
    settings: dict[str, Any] = {
        "max_steps": 7,
        "save_steps": 1,
        "save_total_limit": 2,
        "save_best_limit": 2,
        "load_best_model_at_end": True,
        "greater_is_better": greater,
        "metric_for_best_model": "loss",
        "output_dir": str(toy.path / "run"),
    }

    class Kill(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            if state.global_step == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_scripted(toy, script, callbacks=[Kill()], **settings)
    trainer = run_scripted(toy, script[4:], resume=True, **settings)
    assert sorted(p.name for p in trainer.run_dir.glob("checkpoint-*")) == [
        f"checkpoint-{step}" for step in kept
    ]
    best = [("checkpoint-2", 1.0), ("checkpoint-4", 1.5)]
    if greater:
        best = [("checkpoint-6", 4.0), ("checkpoint-1", 3.0)]
    assert trainer.state.best_checkpoints == best
    assert trainer.state.best_model_checkpoint == best[0][0]


def test_a_nan_metric_is_never_the_best_and_never_fatal(toy: Any) -> None:
    nan = float("nan")
    trainer = run_scripted(
        toy, [nan, 2.0, nan, 1.0], max_steps=4, save_steps=1, load_best_model_at_end=True
    )
    assert trainer.state.best_model_checkpoint == "checkpoint-4"
    everywhere = run_scripted(
        toy, [nan, nan], max_steps=2, save_steps=1, load_best_model_at_end=True
    )
    assert everywhere.state.best_model_checkpoint is None
    assert everywhere.model.weight.item() == -2.0


def test_early_stopping_counts_evaluations_without_improvement(toy: Any) -> None:
    trainer = run_scripted(
        toy, [3.0, 2.0, 2.5, 2.0, 1.0], max_steps=5, save_steps=5, early_stopping_patience=2
    )
    assert trainer.state.global_step == 4


def test_a_watched_metric_that_is_not_computed_is_named(toy: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'wer' was not computed"):
        run_scripted(toy, [1.0], max_steps=1, metric_for_best_model="wer")


def test_a_moved_run_directory_still_finds_its_best(toy: Any, tmp_path: Path) -> None:
    trainer = run_scripted(toy, [3.0, 1.0], max_steps=2, save_steps=1, load_best_model_at_end=True)
    state = json.loads((trainer.run_dir / "checkpoint-2" / "trainer_state.json").read_text())
    assert state["state"]["best_model_checkpoint"] == "checkpoint-2"
    assert str(tmp_path) not in json.dumps(state)


def test_a_used_output_directory_is_refused_and_cleared_on_request(toy: Any) -> None:
    first = toy.run(max_steps=1, save_strategy="steps", save_steps=1)
    with pytest.raises(FileExistsError, match="overwrite_output_dir"):
        toy.run(max_steps=1, output_dir=str(first.run_dir))
    (first.run_dir / "notes.txt").write_text("mine")
    again = toy.run(max_steps=2, output_dir=str(first.run_dir), overwrite_output_dir=True)
    assert (again.run_dir / "notes.txt").read_text() == "mine"
    assert not (again.run_dir / "checkpoint-1").exists()


def test_an_unwritable_output_directory_is_named(toy: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="cannot be written"):
        toy.run(max_steps=1, output_dir=str(tmp_path / "file"))


class Stream(torch.utils.data.IterableDataset[dict[str, Tensor]]):
    def __init__(self, frames: Any) -> None:
        self.frames = frames

    def __iter__(self) -> Any:
        return iter(self.frames.items)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_trains_for_max_steps(toy: Any, workers: int) -> None:
    trainer = toy.run(
        train=Stream(toy.Frames(10)),
        per_device_train_batch_size=4,
        max_steps=7,
        dataloader_num_workers=workers,
    )
    assert (trainer.state.global_step, trainer.state.train_epoch) == (7, 2)
    with pytest.raises(ConfigurationError, match="max_steps"):
        toy.run(train=Stream(toy.Frames(10)))
    with pytest.raises(DataError, match="no batch"):
        toy.run(train=Stream(toy.Frames(0)), max_steps=2)


def test_a_plateau_without_its_metric_is_named(toy: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'wer' was not computed"):
        run_scripted(
            toy, [1.0], max_steps=1, lr_scheduler_type="plateau", metric_for_best_model="wer"
        )


def test_a_mask_of_infinities_is_no_reason_not_to_save(toy: Any) -> None:
    class Masked(toy.FrameRegressor):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("causal", torch.full((3, 3), float("-inf")).triu(1))

    trainer = toy.run(model=Masked(), max_steps=2, save_strategy="steps", save_steps=1)
    assert (trainer.run_dir / "checkpoint-2" / ".complete").exists()


def test_samples_are_counted_as_read(toy: Any) -> None:
    class Ones(UnevenPlan):
        def batches(self, epoch: int) -> list[list[int]]:
            return [[0, 1, 2, 3, 4]]

        def num_batches(self, epoch: int) -> int:
            return 1

    trainer = toy.run(trainer={"train_plan": Ones()}, num_train_epochs=3)
    assert trainer._run.loop.samples_read == 15
