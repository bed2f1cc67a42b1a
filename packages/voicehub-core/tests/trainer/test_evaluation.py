"""Evaluation: item weighting, named splits, untouched randomness, frozen parts, plain modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from voicehub.data.plan import FixedSizePlan
from voicehub.errors import DataError
from voicehub.trainer.trainer import Trainer


def evaluate(toy: Any, model: nn.Module, data: Any, **options: Any) -> dict[str, float]:
    settings = options.pop("settings", {})
    trainer = Trainer(
        model=model,
        args=toy.arguments(**settings),
        data_collator=options.pop("data_collator", toy.collate),
        eval_dataset=data,
        **options,
    )
    return trainer.evaluate()


@pytest.mark.parametrize("batch", [1, 3, 10])
def test_the_loss_is_a_mean_over_items_whatever_the_batch(toy: Any, batch: int) -> None:
    torch.manual_seed(0)
    model = toy.FrameRegressor().to(torch.float64)
    data = toy.Frames(10, dtype=torch.float64)
    expected = float(model(**toy.collate(data.items))["loss"].detach())
    metrics = evaluate(toy, model, data, settings={"per_device_eval_batch_size": batch})
    assert metrics["eval_loss"] == pytest.approx(expected, rel=1e-12)
    assert metrics["eval_samples"] == 10


def test_named_splits_and_their_mean(toy: Any) -> None:
    torch.manual_seed(0)
    metrics = evaluate(
        toy, toy.FrameRegressor(), {"clean": toy.Frames(4), "noisy": toy.Frames(5, seed=1)}
    )
    mean = (metrics["eval_clean_loss"] + metrics["eval_noisy_loss"]) / 2
    assert metrics["eval_loss"] == pytest.approx(mean)
    assert metrics["eval_noisy_samples"] == 5


def test_an_empty_split_is_refused(toy: Any) -> None:
    with pytest.raises(DataError, match="empty"):
        evaluate(toy, toy.FrameRegressor(), toy.Frames(0))


def test_evaluation_leaves_training_randomness_and_results_alone(toy: Any) -> None:
    """Dropout draws from the process's state: with or without evaluations, equal weights."""

    class Noisy(toy.FrameRegressor):  # type: ignore[misc, name-defined]
        def forward(self, **batch: Tensor) -> dict[str, Any]:
            if not self.training:
                torch.rand(3), np.random.rand(3)
            return super().forward(**batch)  # type: ignore[no-any-return]

    def trained(**settings: Any) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = Noisy(dropout=0.3)
        toy.run(model=model, trainer={"eval_dataset": toy.Frames(3)}, max_steps=4, **settings)
        return toy.weights(model)

    watched = trained(eval_strategy="steps", eval_steps=1)
    alone = trained()
    assert all(torch.equal(watched[name], alone[name]) for name in alone)


def test_two_evaluations_agree_bit_for_bit(toy: Any) -> None:
    torch.manual_seed(0)
    trainer = Trainer(
        model=toy.FrameRegressor(dropout=0.5),
        args=toy.arguments(),
        data_collator=toy.collate,
        eval_dataset=toy.Frames(6),
    )
    assert trainer.evaluate()["eval_loss"] == trainer.evaluate()["eval_loss"]


def test_compute_metrics_and_predict(toy: Any) -> None:
    torch.manual_seed(0)

    def absolute_error(prediction: Any) -> dict[str, float]:
        valid = prediction.label_ids != -100
        errors = np.abs(prediction.predictions - prediction.label_ids)
        return {"mae": float(errors[valid].mean())}

    def collate(items: Any) -> dict[str, Tensor]:
        batch = toy.collate(items)
        targets = batch["targets"].masked_fill(~batch["mask"], -100.0)
        return {**batch, "targets": targets}

    model = toy.FrameRegressor()
    options: dict[str, Any] = {
        "settings": {"label_names": ["targets"], "per_device_eval_batch_size": 2},
        "data_collator": collate,
    }
    data = toy.Frames(5)
    metrics = evaluate(toy, model, data, compute_metrics=absolute_error, **options)
    errors = []
    for item in data.items:
        output = model(**toy.collate([item]))
        errors.append((output["logits"] - item["targets"]).abs().flatten())
    assert metrics["eval_mae"] == pytest.approx(float(torch.cat(errors).mean().detach()), rel=1e-5)

    trainer = Trainer(model=model, args=toy.arguments(label_names=["targets"]),
                      data_collator=collate)  # fmt: skip
    result = trainer.predict(data)
    assert result.predictions.shape[0] == 5 and "test_loss" in result.metrics


def test_a_frozen_batch_norm_does_not_move(toy: Any) -> None:
    class WithNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.front = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
            self.head = toy.FrameRegressor()
            self.front.requires_grad_(False)

        def forward(self, features: Tensor, mask: Tensor, targets: Tensor) -> Any:
            flat = self.front(features.flatten(0, 1))
            return self.head(flat.view_as(features), mask, targets)

    torch.manual_seed(0)
    model = WithNorm()
    before = toy.weights(model.front)
    head = toy.weights(model.head)
    toy.run(
        model=model, trainer={"eval_dataset": toy.Frames(2)}, max_steps=3,
        eval_strategy="steps", eval_steps=1,
    )  # fmt: skip
    assert not model.front.training and model.head.training
    assert all(torch.equal(before[n], v) for n, v in toy.weights(model.front).items())
    assert any(not torch.equal(head[n], v) for n, v in toy.weights(model.head).items())


class TupleModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.layer(x).squeeze(-1) - y).square().mean()


def test_a_plain_tensor_data_set_trains_a_plain_module(toy: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    y = x.sum(-1)
    model = TupleModel()
    before = float(model(x, y).detach())
    toy.run(
        model=model,
        train=torch.utils.data.TensorDataset(x, y),
        trainer={"data_collator": None},
        max_steps=60,
        learning_rate=0.05,
    )
    assert float(model(x, y).detach()) < 0.1 * before


def test_columns_that_forward_does_not_take_are_dropped_and_told(
    toy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def collate(items: Any) -> dict[str, Any]:
        return {**toy.collate(items), "speaker": ["a"] * len(items)}

    toy.run(trainer={"data_collator": collate}, max_steps=2)
    messages = [r.message for r in caplog.records if "dropped" in r.message]
    assert len(messages) == 1 and "speaker" in messages[0]
    with pytest.raises(TypeError, match="speaker"):
        toy.run(trainer={"data_collator": collate}, max_steps=1, remove_unused_columns=False)


def test_a_plan_serves_the_split_it_was_made_for_alone(toy: Any) -> None:
    torch.manual_seed(0)
    own, other = toy.Frames(4), toy.Frames(9, seed=3)
    trainer = Trainer(
        model=toy.FrameRegressor(),
        args=toy.arguments(),
        data_collator=toy.collate,
        eval_dataset=own,
        eval_plans={"eval": FixedSizePlan(4, 2, seed=0, shuffle=False)},
    )
    assert trainer.evaluate()["eval_samples"] == 4
    assert trainer.evaluate(other)["eval_samples"] == 9
