"""Toy wrappers and recipes that the adapter tests share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.context import TrainingContext
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec


class Regressor(nn.Module):
    """An encoder with BatchNorm and dropout, and a head; mean squared error over items."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(size, size), nn.BatchNorm1d(size), nn.Dropout(0.5))
        self.head = nn.Linear(size, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        logits = self.head(self.encoder(x)).squeeze(-1)
        if labels is None:
            return {"logits": logits}
        return {
            "loss": (logits - labels).pow(2).mean(),
            "logits": logits,
            "num_items": labels.numel(),
        }


class Wrapper:
    """A lazy wrapper that records the order of calls."""

    def __init__(self, build: Any, model_type: str = "toy") -> None:
        self.build = build
        self.model_type = model_type
        self.calls: list[str] = []
        self.model: Any = None

    def validate_training_support(self) -> None:
        self.calls.append("validate")

    def load_for_training(self) -> None:
        self.calls.append("load")
        for name, module in self.build().items():
            setattr(self, name, module)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "x": torch.randn(8, 4, generator=generator),
        "labels": torch.randn(8, generator=generator),
    }


@pytest.fixture
def make_adapter():
    """Return ``make(modules, phases, **spec fields) -> adapter`` that is set up."""

    def make(
        modules: dict[str, nn.Module],
        phases: tuple[TrainingPhaseSpec, ...] = (),
        *,
        cls: type[TrainingAdapter] = TrainingAdapter,
        setup: bool = True,
        **fields: Any,
    ) -> TrainingAdapter:
        spec = ModelTrainingSpec("toy", "toys", support="native", phases=phases, **fields)
        adapter = cls(Wrapper(lambda: modules), spec)
        if setup:
            adapter.setup()
        return adapter

    return make


@pytest.fixture
def run():
    """Return ``run(adapter, phase name, inputs, **context fields)`` for a training phase."""

    def execute(adapter: TrainingAdapter, phase: str, inputs: Any, **fields: Any) -> Any:
        context = TrainingContext(adapter.select_phase(phase), inputs, **fields)
        return adapter.execute_training_phase(context)

    return execute


@pytest.fixture
def regressor() -> Regressor:
    return Regressor()


@pytest.fixture
def regressor_class() -> type[Regressor]:
    return Regressor
