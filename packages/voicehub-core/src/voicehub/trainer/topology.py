"""Going on with another number of processes or another strategy: ``resume_topology="any"``.

Data position, weights, optimizer state and schedules do not depend on the number of processes, as
long as an update is made of as many micro-batches: ``gradient_accumulation_steps`` times processes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


def without_topology(signature: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resume signature without what only says how processes share the work.

    In the place of the accumulation steps stands how many micro-batches make an update.
    """
    plain = copy.deepcopy(dict(signature))
    strategy = plain.pop("strategy", {})
    data = plain.get("data", {})
    if "accumulation" in data:
        together = data.pop("accumulation") * strategy.get("world_size", 1)
        data["micro_batches_an_update (accumulation x processes)"] = together
    for optimizer in plain.get("optimization", {}).get("optimizers", {}).values():
        for group in optimizer.get("groups", ()):
            group.pop("foreach", None)  # one tensor at a time where processes hold parts of some
    return plain


def describe_change(saved: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    """Say what stays exact and what does not where the topology differs; None where it does not."""
    before, now = saved.get("strategy", {}), current["strategy"]
    if before == now:
        return None
    return (
        f"Resumed on {_named(now)} from {_named(before)}. Exactly those of the checkpoint are "
        "weights, optimizer state, averages, schedules and the position in the data. No longer "
        "bit-equal to the run that was never interrupted: the order in which gradients are summed "
        "(rounding), layer dropout (random states belong to a process), and batch statistics, "
        "whose running values come from the first process."
    )


def _named(strategy: Mapping[str, Any]) -> str:
    size = strategy.get("world_size", 1)
    return f"{size} process{'es' if size != 1 else ''} ({strategy.get('name', 'torch')})"
