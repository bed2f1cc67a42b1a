"""Buffers that a dropped update has changed are as they were; the rest costs nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voicehub.data.plan import FixedSizePlan
from voicehub.trainer.buffers import BufferGuard
from voicehub.trainer.trainer import Trainer


class Normed(nn.Module):
    """A BatchNorm, a counter that is exchanged for a new tensor, and a table that never changes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.layer = nn.Linear(3, 1)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("table", torch.eye(3))

    def forward(self, features: Tensor, bad: Tensor) -> dict[str, Any]:
        self.calls = self.calls + 1
        features = features.masked_fill(bad[:, None], torch.nan)
        errors = self.layer(self.norm(features) @ self.table).square()
        return {"loss": errors.mean(), "num_items": len(features)}


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Rows of which every eighth turns into NaN, or is left out."""

    deterministic = True

    def __init__(self, *, bad: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        features = torch.randn(32, 3, generator=generator)
        self.items = [
            {"features": row, "bad": torch.tensor(n % 8 == 3)} for n, row in enumerate(features)
        ]
        if not bad:
            # The batches of four around a bad row are skipped: without them, the same run.
            self.items = [row for n, row in enumerate(self.items) if n // 4 % 2 == 1]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.items[index]


def buffers(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.named_buffers()}


def test_running_statistics_survive_batches_that_are_not_finite(toy: Any) -> None:
    ends = []
    for bad in (True, False):
        data = Rows(bad=bad)
        torch.manual_seed(0)
        model = Normed()
        trainer = Trainer(
            model=model,
            args=toy.arguments(num_train_epochs=2, max_nonfinite_steps=9),
            train_dataset=data,
            train_plan=FixedSizePlan(len(data), 4, shuffle=False),
        )
        trainer.train()
        assert trainer.state.skipped_steps == (8 if bad else 0)
        assert trainer.state.global_step == 8
        ends.append(toy.weights(model))
    assert int(ends[0]["norm.num_batches_tracked"]) == 8
    for name, value in ends[1].items():
        assert torch.equal(ends[0][name], value), name


@pytest.mark.parametrize("change", ["in place", "exchanged"])
def test_what_changed_is_put_back(change: str) -> None:
    model = Normed()
    guard = BufferGuard(model)
    for _ in range(2):
        model.norm(torch.randn(4, 3))
        guard.remember()
        before = buffers(model)
        if change == "in place":
            model.norm(torch.full((4, 3), torch.nan))
        else:
            model.norm.running_mean = torch.full((3,), torch.inf)
        guard.restore()
        assert all(torch.equal(before[name], value) for name, value in buffers(model).items())
    model.eval()
    assert torch.isfinite(model.norm(torch.ones(2, 3))).all()


def test_only_what_changed_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Normed()
    guard = BufferGuard(model)
    copied: list[int] = []
    copy = torch._foreach_copy_

    def counted(targets: list[Tensor], sources: list[Tensor]) -> Any:
        copied.append(len(targets))
        return copy(targets, sources)

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    guard.remember()
    model.norm(torch.randn(4, 3))  # mean, variance and count
    guard.remember()
    model.eval()
    model.norm(torch.randn(4, 3))
    guard.remember()
    assert copied == [2, 3]  # running ones while training, their count once it has changed


def test_buffers_of_inference_mode_are_left_alone() -> None:
    with torch.inference_mode():
        model = Normed()
    guard = BufferGuard(model)
    guard.remember()
    guard.restore()
    assert torch.equal(model.table, torch.eye(3))


class Cached(nn.Module):
    """Buffers that come and go: set by a forward, let go, deleted, made in inference mode."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("set_later", None)
        self.register_buffer("let_go", torch.ones(2))
        self.register_buffer("deleted", torch.ones(3))
        with torch.inference_mode():
            self.register_buffer("constant", torch.ones(4))


def test_buffers_that_come_and_go_are_put_back() -> None:
    model = Cached()
    let_go, deleted = model.let_go, model.deleted
    guard = BufferGuard(model)
    guard.remember()
    model.set_later, model.let_go = torch.zeros(1), None
    del model.deleted
    guard.restore()
    assert model.set_later is None
    assert model.let_go is let_go and model.deleted is deleted
    model.let_go = None
    with torch.inference_mode():
        model.set_later = torch.ones(1)
    guard.remember()
    model.let_go = torch.zeros(2)
    guard.restore()
    assert model.let_go is None and torch.equal(model.set_later, torch.ones(1))
