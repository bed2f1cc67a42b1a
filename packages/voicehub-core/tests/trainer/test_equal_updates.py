"""An update does not depend on how its global batch was split (R3, R4, G5).

Judged on the change of the weights over three updates: at small rates, or on the weights
themselves, wrong code would pass.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voicehub.trainer.trainer import Trainer

SPLITS = [(8, 1), (4, 2), (2, 4), (1, 8)]


def three_updates(toy: SimpleNamespace, per_device: int, accumulation: int, **options: Any) -> Any:
    dtype = options.pop("dtype", torch.float64)
    torch.manual_seed(0)
    model = options.pop("model", None) or toy.FrameRegressor().to(dtype)
    start = toy.weights(model)
    toy.run(
        model=model,
        train=toy.Frames(22, dtype=dtype),  # 8 + 8 + a ragged 6
        dtype=dtype,
        per_device_train_batch_size=per_device,
        gradient_accumulation_steps=accumulation,
        num_train_epochs=1,
        max_grad_norm=options.pop("max_grad_norm", 0.0),
        **options,
    )
    return start, toy.weights(model)


@pytest.mark.parametrize("optim", ["sgd", "adamw"])
@pytest.mark.parametrize("split", SPLITS[1:])
def test_any_split_gives_the_same_update_in_float64(
    toy: SimpleNamespace, optim: str, split: tuple[int, int]
) -> None:
    settings = {"optim": optim, "learning_rate": 0.1}
    start, whole = three_updates(toy, *SPLITS[0], **settings)
    _, parts = three_updates(toy, *split, **settings)
    assert toy.distance(whole, parts, start) <= 1e-9


@pytest.mark.parametrize("split", SPLITS[1:])
def test_any_split_gives_the_same_update_in_float32(
    toy: SimpleNamespace, split: tuple[int, int]
) -> None:
    settings: dict[str, Any] = {"optim": "sgd", "learning_rate": 1.0, "dtype": torch.float32}
    start, whole = three_updates(toy, *SPLITS[0], **settings)
    _, parts = three_updates(toy, *split, **settings)
    assert toy.distance(whole, parts, start) <= 1e-4


def test_clipping_sees_the_normalised_gradient(toy: SimpleNamespace) -> None:
    settings = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.05}
    start, whole = three_updates(toy, 8, 1, **settings)
    _, parts = three_updates(toy, 1, 8, **settings)
    assert toy.distance(whole, parts, start) <= 1e-9


def test_the_test_can_fail(toy: SimpleNamespace) -> None:
    """Without item counts a ragged split is a mean of means, which differs."""
    settings = {"optim": "sgd", "learning_rate": 0.1}
    counted = three_updates(toy, 2, 4, **settings)
    uncounted_model = toy.FrameRegressor(count_items=False).to(torch.float64)
    torch.manual_seed(0)
    uncounted_model.load_state_dict(counted[0])
    _, uncounted = three_updates(toy, 2, 4, model=uncounted_model, **settings)
    assert toy.distance(counted[1], uncounted, counted[0]) > 1e-3


def test_without_items_micro_batches_weigh_the_same(toy: SimpleNamespace) -> None:
    """The gradient of a window is the mean over its micro-batches, not their sum."""
    model = toy.FrameRegressor(count_items=False).to(torch.float64)
    reference = toy.FrameRegressor(count_items=False).to(torch.float64)
    reference.load_state_dict(model.state_dict())
    start = toy.weights(model)
    data = toy.Frames(4, dtype=torch.float64)
    trainer = toy.run(
        model=model,
        train=data,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        num_train_epochs=1,
        optim="sgd",
        learning_rate=0.1,
        max_grad_norm=0.0,
    )
    assert trainer.state.global_step == 1
    losses = [reference(**toy.collate([data[i]]))["loss"] for i in range(4)]
    torch.stack(losses).mean().backward()
    with torch.no_grad():
        for parameter in reference.parameters():
            assert parameter.grad is not None
            parameter -= 0.1 * parameter.grad
    assert toy.distance(toy.weights(reference), toy.weights(model), start) <= 1e-9


def frame_loss(outputs: dict[str, Any], labels: Tensor, num_items_in_batch: int) -> Tensor:
    valid = labels != -100
    errors = (outputs["logits"] - labels.to(outputs["logits"].dtype)).square() * valid
    return errors.sum() / num_items_in_batch


class Predictor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        return {"logits": self.layer(features).squeeze(-1)}


@pytest.mark.parametrize("split", SPLITS[1:])
def test_custom_losses_count_the_real_window(toy: SimpleNamespace, split: tuple[int, int]) -> None:
    """``num_items_in_batch`` is that of the window, the ragged last one included."""

    def collate(items: Any) -> dict[str, Tensor]:
        batch = toy.collate(items)
        labels = (batch["targets"] * 10).round().long().masked_fill(~batch["mask"], -100)
        return {"features": batch["features"], "labels": labels}

    def updated(split: tuple[int, int]) -> Any:
        torch.manual_seed(1)
        return three_updates(
            toy,
            *split,
            model=Predictor().to(torch.float64),
            optim="sgd",
            learning_rate=0.001,
            trainer={"data_collator": collate, "compute_loss_func": frame_loss},
        )

    (start, whole), (_, parts) = updated(SPLITS[0]), updated(split)
    assert toy.distance(whole, parts, start) <= 1e-9


def test_losses_are_logged_as_means_over_the_items_of_the_window(toy: SimpleNamespace) -> None:
    def losses(split: tuple[int, int]) -> list[float]:
        trainer: Trainer = toy.run(
            train=toy.Frames(22, dtype=torch.float64),
            dtype=torch.float64,
            per_device_train_batch_size=split[0],
            gradient_accumulation_steps=split[1],
            num_train_epochs=1,
        )
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]

    assert losses((2, 4)) == pytest.approx(losses((8, 1)), rel=1e-9)
