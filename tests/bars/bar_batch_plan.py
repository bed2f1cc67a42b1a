"""Padding of the batch plan on durations like LibriSpeech's, and the order of its batches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from barkit import ROOT, Outcome, Skipped, bar

sys.path.insert(0, str(ROOT / "benchmarks"))

import batch_plan

WASTE = 0.03
SIGMAS = (0.31, batch_plan.SIGMA, 0.7)
ORDER_ITEMS, EPOCHS = 12_000, 60


@bar(
    "batch-plan",
    f"281,241 durations, log-normal with mean {batch_plan.MEAN} s and sigma "
    f"{batch_plan.SIGMA}, clipped to 1-35 s, cap 200 s: padding waste <= {WASTE:.0%} and below "
    f"transformers and lhotse; order of batches random at level {batch_plan.LEVEL}",
)
def batch_plans(scratch: Path) -> Outcome:
    wastes: dict[float, dict[str, float]] = {}
    for sigma in SIGMAS:
        lengths, _ = batch_plan.durations(batch_plan.LIBRISPEECH, sigma)
        plans = batch_plan.systems(lengths)
        if len(plans) < 6:
            raise Skipped("needs transformers and lhotse: `nox -s bars` installs them")
        wastes[sigma] = {name: batch_plan.waste(plan(0), lengths) for name, plan in plans.items()}
        largest = max(batch_plan.padded(batch, lengths) for batch in plans["voicehub"](0))
        if largest > batch_plan.CAP:
            return Outcome(f"a batch of {largest:.1f} padded seconds breaks the cap", False)
    fewer, _ = batch_plan.durations(ORDER_ITEMS)
    order = batch_plan.order_of(batch_plan.ours(fewer), fewer, EPOCHS)
    passed = min(order.values()) >= batch_plan.LEVEL and all(map(_first, wastes.values()))
    found = wastes[batch_plan.SIGMA]
    others = ", ".join(f"{name} {value:.2%}" for name, value in found.items() if name != "voicehub")
    figure = (
        f"{found['voicehub']:.2%} ({others}); order p >= {min(order.values()):.2f} over {EPOCHS} "
        "epochs; sigma "
        + ", ".join(f"{sigma}: {wastes[sigma]['voicehub']:.2%}" for sigma in SIGMAS)
    )
    extra: dict[str, Any] = {"waste": {str(k): v for k, v in wastes.items()}, "order": order}
    return Outcome(figure, passed, extra)


def _first(wastes: dict[str, float]) -> bool:
    ours = wastes["voicehub"]
    return ours <= WASTE and all(
        ours < value for name, value in wastes.items() if name != "voicehub"
    )
