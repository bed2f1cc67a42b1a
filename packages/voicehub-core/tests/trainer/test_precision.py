"""bf16 with fp32 masters, fp16 scaling with a scaler of its own, gradient checkpointing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from voicehub.strategies.single import SingleProcessStrategy
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.trainer import Trainer


class Slope(nn.Module):
    """Loss = mean(w x) with x = 1: the gradient of w is 1, whatever w is."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False, dtype=dtype)
        nn.init.ones_(self.layer.weight)
        self.seen: set[torch.dtype] = set()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        output = self.layer(x.to(self.layer.weight.dtype))
        self.seen.add(output.dtype)
        return {"loss": output.mean()}


def descend(toy: Any, model: Slope) -> float:
    trainer = Trainer(
        model=model,
        args=toy.arguments(
            bf16=True,
            optim="sgd",
            learning_rate=1e-3,
            max_grad_norm=0.0,
            max_steps=100,
            per_device_train_batch_size=2,
        ),
        train_dataset=[{"x": torch.ones(1)} for _ in range(8)],
    )
    trainer.train()
    return float(model.layer.weight.detach())


def test_small_updates_survive_in_fp32_masters(toy: Any) -> None:
    model = Slope()
    assert descend(toy, model) == pytest.approx(0.9, abs=1e-5)
    assert model.seen == {torch.bfloat16}
    assert model.layer.weight.dtype is torch.float32
    # The same updates vanish in bf16 weights: they are below what those resolve near 1.
    assert descend(toy, Slope(torch.bfloat16)) == 1.0


def test_dtypes_of_a_bf16_run(toy: Any) -> None:
    trainer = toy.run(bf16=True, max_steps=2)
    optimizer = trainer.graph.optimizers["default"]
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    moments = [v for state in optimizer.state.values() for v in state.values() if v.ndim]
    assert {v.dtype for v in moments} == {torch.float32}
    assert len(moments) == 2 * 4


def test_losses_are_fp32_whatever_the_forward_computes_in(toy: Any) -> None:
    losses: list[torch.Tensor] = []

    class Strategy(SingleProcessStrategy):
        def backward(self, loss: torch.Tensor, *, scaler: Any) -> None:
            losses.append(loss.detach())
            super().backward(loss, scaler=scaler)

    args = toy.arguments(bf16=True, max_steps=1, per_device_train_batch_size=300)
    data = [{"x": torch.full((1,), 1.0 + i / 256)} for i in range(300)]
    Trainer(model=Slope(), args=args, train_dataset=data, training_strategy=Strategy(args)).train()
    assert [loss.dtype for loss in losses] == [torch.float32]
    bf16 = toy.run(bf16=True, max_steps=4).state.log_history
    fp32 = toy.run(max_steps=4).state.log_history
    for low, full in zip(bf16, fp32, strict=True):
        assert low["loss"] == pytest.approx(full["loss"], rel=3e-2)
        assert low["loss"] != full["loss"]


class Fp16OnCpu(SingleProcessStrategy):
    """The scaler of fp16 without its device: what counts is who follows it."""

    def create_grad_scaler(self) -> Any:
        return torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=1000)


class Overflowing(nn.Module):
    """The gradient overflows in the updates named by ``at``."""

    def __init__(self, at: set[int]) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.at = at
        self.calls = 0

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        loss = self.layer(x).square().mean()
        if self.calls in self.at:
            loss.register_hook(lambda grad: grad * float("inf"))
        self.calls += 1
        return {"loss": loss}


class Trace(TrainerCallback):
    def __init__(self) -> None:
        self.rows: list[tuple[int, float, float]] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        rate = context["schedulers"].learning_rates()["default"]
        weight = float(context["model"].layer.weight.detach())
        self.rows.append((state.global_step, rate, weight))


def test_an_overflow_skips_the_step_and_halves_the_scale(toy: Any) -> None:
    torch.manual_seed(0)
    args = toy.arguments(
        max_steps=3, lr_scheduler_type="linear", per_device_train_batch_size=4, optim="sgd"
    )
    strategy, trace = Fp16OnCpu(args), Trace()
    trainer = Trainer(
        model=Overflowing({1}),
        args=args,
        train_dataset=[{"x": torch.ones(1)} for _ in range(40)],
        training_strategy=strategy,
        callbacks=[trace],
    )
    trainer.train()
    steps, rates, weights = zip(*trace.rows, strict=True)
    assert steps == (0, 1, 1, 2)
    assert rates == pytest.approx((0.01, 0.01 * 2 / 3, 0.01 * 2 / 3, 0.01 / 3))
    assert weights[1] == weights[2] and len(set(weights)) == 3
    assert trainer.state.skipped_steps == 1
    assert trainer._run is not None
    assert trainer._run.saver.scaler.get_scale() == 2.0**7


def test_scaled_gradients_give_the_same_update(toy: Any) -> None:
    ends = []
    for kind in (SingleProcessStrategy, Fp16OnCpu):
        args = toy.arguments(max_steps=5, optim="sgd", max_grad_norm=0.05)
        torch.manual_seed(0)
        model = toy.FrameRegressor()
        Trainer(
            model=model,
            args=args,
            data_collator=toy.collate,
            train_dataset=toy.Frames(11),
            training_strategy=kind(args),
        ).train()
        ends.append(toy.weights(model))
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, rtol=1e-6, atol=1e-7)


class Recomputing(nn.Module):
    """A stack that offers gradient checkpointing, with dropout inside what is recomputed."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Dropout(0.2)) for _ in range(3)
        )
        self.recompute = False
        self.forwards = 0
        self.layers[0][0].register_forward_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.forwards += 1

    def gradient_checkpointing_enable(self) -> None:
        self.recompute = True

    def forward(self, features: Any, mask: Any, targets: Any) -> dict[str, Any]:
        hidden = features
        for layer in self.layers:
            recompute = self.recompute and self.training
            hidden = checkpoint(layer, hidden, use_reentrant=False) if recompute else layer(hidden)
        errors = (hidden.mean(-1) - targets).square() * mask
        return {"loss": errors.sum() / mask.sum(), "num_items": mask.sum()}


@pytest.mark.parametrize("freeze", [[], ["layers.0"]])
@pytest.mark.parametrize("bf16", [False, True])
def test_gradient_checkpointing_computes_twice_and_the_same(
    toy: Any, freeze: list[str], bf16: bool
) -> None:
    ends, forwards = [], []
    for recompute in (False, True):
        torch.manual_seed(0)
        model = Recomputing()
        toy.run(
            model=model,
            max_steps=3,
            gradient_accumulation_steps=2,
            gradient_checkpointing=recompute,
            bf16=bf16,
            freeze=freeze,
        )
        ends.append(toy.weights(model))
        forwards.append(model.forwards)
    # A frozen first layer has nothing to recompute for.
    assert forwards == [6, 6 if freeze else 12]
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name]), name
