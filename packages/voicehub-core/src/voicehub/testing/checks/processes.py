"""Two processes make the updates that one process makes (G5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.registry import get_training_spec, known_model_types, register_training_spec
from voicehub.testing.case import ConformanceCase
from voicehub.testing.checks.accumulation import bold_rate, distance, routed_weights
from voicehub.testing.probe import build_adapter
from voicehub.testing.ranks import run_on_ranks
from voicehub.testing.samples import draw_items
from voicehub.testing.training import make_trainer

_PER_DEVICE, _UPDATES = 4, 3
#: Five micro-batches of at most 4: two ranks share two windows, the last leaves the second none.
_ITEMS = 18


def two_processes(case: ConformanceCase, directory: Path) -> str:
    """Compare two processes over gloo with one that accumulates their micro-batches."""
    plans: list[tuple[str, torch.dtype, float, float]] = [
        ("sgd", torch.float32, bold_rate(case), 1e-4)
    ]
    if case.float64:
        plans = [
            ("sgd", torch.float64, 1e-1, 1e-9),
            ("adamw", torch.float64, 1e-2, 1e-9),
            *plans,
        ]
    runs = [(optim, dtype, rate) for optim, dtype, rate, _ in plans]
    spec = get_training_spec(case.model_type)
    both = run_on_ranks(2, train_plans, case, spec, directory / "two", runs, "ddp")
    evidence = []
    for (optim, dtype, rate, limit), first, second in zip(plans, *both, strict=True):
        name = f"{optim} float{32 if dtype is torch.float32 else 64}"
        for parameter, value in first.items():
            assert torch.equal(value, second[parameter]), (
                f"{name}: the two processes end with different weights in {parameter}. Does the "
                "recipe change weights outside of the optimizer, by what differs between ranks?"
            )
        start = routed_weights(build_adapter(case, dtype=dtype))
        alone = _train(case, directory / f"one {name}", optim, dtype, rate, accumulation=2)
        gap = distance(alone, first, start)
        assert gap <= limit, (
            f"{name}: two processes and one end {gap:.2g} apart (limit {limit:g}). Does every "
            "phase return num_items, and does anything depend on the rank?"
        )
        evidence.append(f"{name} {gap:.1g}")
    return ", ".join(evidence)


def train_plans(
    case: ConformanceCase,
    spec: ModelTrainingSpec,
    directory: Path,
    runs: list[tuple[str, torch.dtype, float]],
    strategy: str,
) -> list[dict[str, Tensor]]:
    """Train by each plan on this rank and return the weights that the routes own."""
    if case.model_type not in known_model_types():
        register_training_spec(spec)  # as the test that made the case has done in its own process
    return [
        _train(case, directory / str(number), *run, accumulation=1, strategy=strategy)
        for number, run in enumerate(runs)
    ]


def _train(
    case: ConformanceCase,
    directory: Path,
    optim: str,
    dtype: torch.dtype,
    learning_rate: float,
    *,
    accumulation: int,
    strategy: str = "torch",
) -> dict[str, Tensor]:
    adapter = build_adapter(case, dtype=dtype)
    settings: dict[str, Any] = {
        "per_device_train_batch_size": _PER_DEVICE,
        "gradient_accumulation_steps": accumulation,
        "max_steps": _UPDATES,
        "optim": optim,
        "learning_rate": learning_rate,
        "strategy": strategy,
        "ddp_timeout": 600.0,  # which a busy machine does not reach
    }
    items = draw_items(case, _ITEMS, 9)
    trainer = make_trainer(case, items, directory, adapter=adapter, dtype=dtype, **settings)
    trainer.train()
    whole = trainer.strategy.whole_tensor
    routes = adapter.routes.values()
    return {name: whole(p).double().clone() for named in routes for name, p in named}
