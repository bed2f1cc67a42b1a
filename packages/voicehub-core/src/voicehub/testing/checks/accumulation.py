"""An update is a function of its global batch, not of how that was split (G5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voicehub.testing.case import ConformanceCase
from voicehub.testing.probe import Probe, build_adapter, total_gradient
from voicehub.testing.samples import draw_items
from voicehub.testing.training import make_trainer

_WHOLE = (8, 1)
_SPLITS = ((4, 2), (1, 8))
_UPDATES = 3
_ITEMS = 22  # windows of 8, 8 and a ragged 6


def accumulation(case: ConformanceCase, directory: Path) -> str:
    """Compare the change of the weights over three updates, the last window ragged."""
    plans: list[tuple[str, torch.dtype, float, float]] = [
        ("sgd", torch.float32, bold_rate(case), 1e-4)
    ]
    if case.float64:
        plans = [
            ("sgd", torch.float64, 1e-1, 1e-9),
            ("adamw", torch.float64, 1e-2, 1e-9),
            *plans,
        ]
    evidence = []
    for optim, dtype, rate, limit in plans:
        name = f"{optim} float{32 if dtype is torch.float32 else 64}"
        start, whole = _train(case, _WHOLE, directory / name, optim, dtype, rate)
        worst = 0.0
        for split in _SPLITS:
            _, parts = _train(case, split, directory / f"{name} {split[0]}", optim, dtype, rate)
            gap = distance(whole, parts, start)
            assert gap <= limit, (
                f"{name}: {split[0]} x {split[1]} and {_WHOLE[0]} x {_WHOLE[1]} end "
                f"{gap:.2g} apart (limit {limit:g}). Does the loss count its num_items?"
            )
            worst = max(worst, gap)
        evidence.append(f"{name} {worst:.1g}")
    return ", ".join(evidence)


def bold_rate(case: ConformanceCase) -> float:
    """Return 1, or less where the first step would then be longer than 1.

    At small rates float32 rounds the differences of wrong code away. Clipping instead would hide
    a gradient that is wrong by a factor.
    """
    norms = [
        float(total_gradient(result).norm()) / result.items
        for result in Probe(case, double=False).measure(draw_items(case, 8, 9)).values()
    ]
    return min(1.0, 1.0 / max(1e-12, *norms))


def _train(
    case: ConformanceCase,
    split: tuple[int, int],
    directory: Path,
    optim: str,
    dtype: torch.dtype,
    learning_rate: float,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    adapter = build_adapter(case, dtype=dtype)
    start = routed_weights(adapter)
    settings: dict[str, Any] = {
        "per_device_train_batch_size": split[0],
        "gradient_accumulation_steps": split[1],
        "max_steps": _UPDATES,
        "optim": optim,
        "learning_rate": learning_rate,
    }
    items = draw_items(case, _ITEMS, 9)
    make_trainer(case, items, directory, adapter=adapter, dtype=dtype, **settings).train()
    return start, routed_weights(adapter)


def routed_weights(adapter: Any) -> dict[str, Tensor]:
    return {
        name: parameter.detach().double().clone()
        for named in adapter.routes.values()
        for name, parameter in named
    }


def distance(one: dict[str, Tensor], two: dict[str, Tensor], start: dict[str, Tensor]) -> float:
    """||dw - dw'|| / ||dw||."""
    first = torch.cat([(one[name] - start[name]).flatten() for name in start])
    second = torch.cat([(two[name] - start[name]).flatten() for name in start])
    norm = float(first.norm())
    assert norm > 0, "three updates moved nothing"
    return float((first - second).norm()) / norm
