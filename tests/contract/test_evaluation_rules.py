"""E1: evaluation through the adapter's phase, in eval mode, and without a trace."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recipes import (
    RECIPES,
    Frames,
    Regressor,
    arguments,
    collate,
    same,
    seeded,
    trainer_for,
    weights,
)
from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.checkpoints.random_state import capture_random_state
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub.trainer.trainer import Trainer


class Witness(nn.Module):
    """Notes in which mode it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1), nn.Dropout(0.5))

    def forward(self, features: Any, mask: Any, targets: Any) -> dict[str, Any]:
        predictions = self.layer(features[mask].float()).squeeze(-1)
        return {"loss": (predictions - targets[mask].float()).square().mean()}


class Noting(TrainingAdapter):
    """Notes phase, mode and context of every execution."""

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> Any:
        assert self.context is not None
        note = (phase.name, self.context.is_training, self.model.training, torch.is_grad_enabled())
        self.__dict__.setdefault("notes", set()).add(note)
        return self.model(**inputs)

    def evaluation_rows(self, output: Any, inputs: Any, info: Any) -> list[Any]:
        return [torch.is_grad_enabled()]

    def evaluation_metrics(self, rows: Any) -> dict[str, float]:
        return {"rows_with_gradients": float(sum(rows))}


def test_E1_the_chosen_phase_runs_in_eval_mode_without_gradients(tmp_path: Path) -> None:
    model = seeded(Witness)
    spec = ModelTrainingSpec(
        "contract-e1",
        "contract",
        support="native",
        module_paths=("",),
        default_phase="judged",
        phases=(TrainingPhaseSpec("trained"), TrainingPhaseSpec("judged", frequency=5)),
    )
    adapter: Any = Noting(model, spec)
    trainer = Trainer(
        model=model,
        args=arguments(tmp_path / "run", max_steps=5),
        data_collator=collate,
        train_dataset=Frames(8),
        eval_dataset=Frames(4, seed=1),
        training_adapter=adapter,
    )
    trainer.train()
    adapter.notes.clear()
    before = weights(trainer)
    metrics = trainer.evaluate()
    assert adapter.notes == {("judged", False, False, False)}
    assert metrics["eval_rows_with_gradients"] == 0.0
    assert same(before, weights(trainer))  # batch statistics included
    assert model.training and all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("recipe", RECIPES)
def test_E1_training_is_the_same_with_and_without_evaluations(tmp_path: Path, recipe: str) -> None:
    runs = []
    for strategy in ("no", "steps"):
        trainer = trainer_for(
            recipe,
            tmp_path / strategy,
            dropout=0.3,
            options={"eval_dataset": Frames(5, seed=1)},
            eval_strategy=strategy,
            eval_steps=1 if strategy == "steps" else None,
            max_steps=5,
        )
        trainer.train()
        runs.append(trainer)
    assert same(weights(runs[0]), weights(runs[1]))
    state = capture_random_state()
    first, second = runs[1].evaluate(), runs[1].evaluate()
    assert first["eval_loss"] == second["eval_loss"]
    assert same(state, capture_random_state())


class Drawing(Regressor):
    """Draws in every forward, as a flow-matching objective does, in evaluation too."""

    def forward(self, features: Any, mask: Any, targets: Any) -> dict[str, Any]:
        shift = random.random() + np.random.rand() + torch.rand((), dtype=features.dtype)
        return super().forward(features + shift, mask, targets)


def test_E1_draws_of_an_evaluation_leave_no_trace(tmp_path: Path) -> None:
    runs = []
    for strategy in ("no", "steps"):
        trainer = Trainer(
            model=seeded(Drawing),
            args=arguments(tmp_path / strategy, eval_strategy=strategy, eval_steps=1),
            data_collator=collate,
            train_dataset=Frames(22),
            eval_dataset=Frames(5, seed=1),
        )
        trainer.train()
        runs.append(trainer)
    assert same(weights(runs[0]), weights(runs[1]))
    state = capture_random_state()
    runs[1].evaluate()
    assert same(state, capture_random_state())


def test_E1_named_splits_and_means_over_items(tmp_path: Path) -> None:
    splits = {"clean": Frames(5, seed=1), "noisy": Frames(3, seed=2)}
    trainer = trainer_for(
        "plain",
        tmp_path / "run",
        options={"eval_dataset": splits},
        per_device_eval_batch_size=2,
    )
    metrics = trainer.evaluate()
    model = trainer.model.eval()
    for name, data in splits.items():
        loss = model(**collate(data.items))["loss"].item()
        assert metrics[f"eval_{name}_loss"] == pytest.approx(loss, rel=1e-12)
        assert metrics[f"eval_{name}_samples"] == len(data)
    mean = (metrics["eval_clean_loss"] + metrics["eval_noisy_loss"]) / 2
    assert metrics["eval_loss"] == pytest.approx(mean, rel=1e-12)


def test_E1_with_averages_a_row_says_which_weights_it_is_of(tmp_path: Path) -> None:
    trainer = trainer_for(
        "gan",
        tmp_path / "run",
        options={"eval_dataset": Frames(5, seed=1)},
        ema_decay=0.5,
        eval_weights="both",
        eval_strategy="steps",
        eval_steps=3,
    )
    trainer.train()
    raw, averaged = trainer.state.log_history[-2:]
    assert (raw["weights"], averaged["weights"]) == ("raw", "ema")
    assert raw["eval_loss"] != averaged["eval_ema_loss"]
