"""Evaluations beyond the loss: accumulators that take rows batch by batch, and tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from voicehub.adapters.evaluation import EvaluationContext, EvaluationTask
from voicehub.adapters.plain import ModuleAdapter
from voicehub.checkpoints.random_state import capture_random_state
from voicehub.errors import ConfigurationError
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.media import Audio
from voicehub.trainer.trainer import Trainer


class Streaming:
    """The mean length of the utterances of a split, of which it keeps two numbers."""

    def __init__(self, split: str) -> None:
        self.split = split
        self.batches: list[int] = []
        self.frames = self.rows = 0.0

    def add(self, rows: Sequence[float]) -> None:
        self.batches.append(len(rows))
        self.frames, self.rows = self.frames + sum(rows), self.rows + len(rows)

    def compute(self) -> Mapping[str, float]:
        return {"frames": self.frames / self.rows}


class Measuring(ModuleAdapter):
    """Rows are lengths; every split has an accumulator of its own."""

    made: list[Streaming]

    def evaluation_rows(self, output: Any, inputs: Any, info: Any) -> list[Any]:
        return [float(n) for n in inputs["mask"].sum(1)]

    def metric_accumulator(self, split: str) -> Streaming:
        self.__dict__.setdefault("made", []).append(Streaming(split))
        return self.made[-1]


class Sounding(EvaluationTask):
    """Draws, looks at mode and weights, gives a metric that falls and rises, and a sound."""

    name = "sounding"

    def __init__(self) -> None:
        self.seen: list[tuple[int, str, float]] = []

    def run(self, context: EvaluationContext) -> Mapping[str, float]:
        module = context.adapter.module
        assert not module.training and not torch.is_grad_enabled()
        torch.rand(3), np.random.rand(3)
        bias = module.output.bias.item()  # type: ignore[operator, union-attr]
        self.seen.append((context.step, context.weights, bias))
        if context.wants_media:
            context.log_media({"sample": Audio(torch.zeros(8), 8000)})
        return {"distortion": abs(context.step - 2.0)}


class Shown(TrainerCallback):
    """Notes the media of a run."""

    def __init__(self) -> None:
        self.names: list[tuple[int, str]] = []

    def on_media(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.names.extend((state.global_step, name) for name in context["media"])


def test_an_accumulator_takes_the_rows_of_each_split_batch_by_batch(toy: Any) -> None:
    torch.manual_seed(0)
    model = toy.FrameRegressor()
    adapter: Any = Measuring(model)
    splits = {"dev": toy.Frames(5), "test": toy.Frames(3, seed=1)}
    trainer = Trainer(
        model=model,
        args=toy.arguments(per_device_eval_batch_size=2),
        data_collator=toy.collate,
        eval_dataset=splits,
        training_adapter=adapter,
    )
    metrics = trainer.evaluate()
    assert [(one.split, one.batches) for one in adapter.made] == [
        ("dev", [2, 2, 1]),
        ("test", [2, 1]),
    ]
    for name, data in splits.items():
        expected = sum(len(item["targets"]) for item in data.items) / len(data)
        assert metrics[f"eval_{name}_frames"] == pytest.approx(expected)
    trainer.evaluate()
    assert len(adapter.made) == 4  # nothing is carried over


def test_a_task_measures_with_the_weights_that_are_evaluated(toy: Any) -> None:
    task, shown = Sounding(), Shown()
    trainer = toy.run(
        trainer={
            "eval_dataset": toy.Frames(4),
            "evaluation_tasks": [task],
            "callbacks": [shown],
        },
        max_steps=3,
        ema_decay=0.5,
        eval_weights="both",
        eval_strategy="steps",
        eval_steps=3,
    )
    (step, kind, raw), (_, other, averaged) = task.seen
    assert (step, kind, other) == (3, "raw", "ema")
    assert raw == trainer.model.output.bias.item() and raw != averaged
    assert shown.names == [(3, "eval_raw/sample"), (3, "eval_ema/sample")]
    rows = [row for row in trainer.state.log_history if "weights" in row]
    assert [row.get("eval_distortion", row.get("eval_ema_distortion")) for row in rows] == [1.0] * 2
    assert "eval_distortion" in rows[0] and "eval_ema_distortion" in rows[1]


def test_the_best_checkpoint_may_be_chosen_by_a_task(toy: Any) -> None:
    trainer = toy.run(
        trainer={"eval_dataset": toy.Frames(4), "evaluation_tasks": [Sounding()]},
        max_steps=4,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="distortion",
    )
    assert trainer.state.best_metric == 0.0
    assert trainer.state.best_model_checkpoint == "checkpoint-2"


def test_a_task_leaves_the_randomness_of_training_alone(toy: Any) -> None:
    def trained(*tasks: EvaluationTask) -> Any:
        trainer = toy.run(
            model=toy.FrameRegressor(dropout=0.3) if torch.manual_seed(0) else None,
            trainer={"eval_dataset": toy.Frames(4), "evaluation_tasks": tasks},
            max_steps=3,
            eval_strategy="steps",
            eval_steps=1,
        )
        return toy.weights(trainer.model), capture_random_state()

    (with_task, state), (without, other) = trained(Sounding()), trained()
    assert all(torch.equal(with_task[name], without[name]) for name in without)
    assert torch.equal(state["cpu"], other["cpu"])


def test_two_metrics_of_one_name_are_refused(toy: Any) -> None:
    class Loss(EvaluationTask):
        name = "second-loss"

        def run(self, context: EvaluationContext) -> Mapping[str, float]:
            return {"loss": 1.0}

    with pytest.raises(ConfigurationError, match="'second-loss' measures 'eval_loss'"):
        toy.run(
            trainer={"eval_dataset": toy.Frames(4), "evaluation_tasks": [Loss()]},
            max_steps=1,
            eval_strategy="steps",
            eval_steps=1,
        )


class Unlabelled(torch.utils.data.Dataset[Any]):
    """Utterances of speakers that training never saw: no target, batches of their own."""

    deterministic = True

    def __init__(self, frames: Any) -> None:
        self.frames = frames

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Any:
        return self.frames[index]["features"]

    def collate_fn(self, items: Sequence[torch.Tensor]) -> Any:
        padded = torch.nn.utils.rnn.pad_sequence(list(items), batch_first=True)
        return {"features": padded, "lengths": [len(item) for item in items]}


class Embedding(ModuleAdapter):
    """Embeds where there is nothing to learn from, and judges all pairs at the end."""

    def training_step_loss(self, inputs: Any, phase: Any) -> Any:
        if "targets" in inputs:
            return self.module(**inputs)
        return {"predictions": self.module.hidden(inputs["features"]).mean(1)}  # type: ignore[operator]

    def evaluation_rows(self, output: Any, inputs: Any, info: Any) -> list[Any]:
        return [] if output.predictions is None else list(output.predictions.numpy())

    def evaluation_metrics(self, rows: Sequence[Any]) -> dict[str, float]:
        points = np.stack(rows)
        return {"spread": float(np.linalg.norm(points[:, None] - points[None], axis=-1).mean())}


def test_an_evaluation_without_a_loss_gives_its_metrics_alone(toy: Any) -> None:
    torch.manual_seed(0)
    model = toy.FrameRegressor()
    train = toy.Frames(6)
    train.collate_fn = toy.collate
    trainer = Trainer(
        model=model,
        args=toy.arguments(
            max_steps=2,
            eval_strategy="steps",
            eval_steps=1,
            metric_for_best_model="spread",
            per_device_eval_batch_size=2,
        ),
        train_dataset=train,
        eval_dataset=Unlabelled(toy.Frames(5, seed=1)),
        training_adapter=Embedding(model),
    )
    trainer.train()
    metrics = trainer.evaluate()
    assert metrics["eval_spread"] > 0 and metrics["eval_samples"] == 5
    assert "eval_loss" not in metrics
    assert trainer.state.best_metric is not None
