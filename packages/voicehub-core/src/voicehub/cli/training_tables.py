"""What a run prints before its first update: the data it kept and dropped, and what trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from voicehub.cli.tables import duration, table

if TYPE_CHECKING:
    from voicehub.adapters.experiment import SplitReport
    from voicehub.trainer.composition import RouteSummary


def data_table(splits: Sequence[SplitReport]) -> str:
    """Per split: rows, kept, dropped by reason, duration; notes below."""
    rows = [
        (split.split, split.total, split.kept, _reasons(split.dropped), duration(split.seconds))
        for split in splits
    ]
    lines = [table(("data", "rows", "kept", "dropped", "audio kept"), rows)]
    lines += [f"  {split.split}: {note}" for split in splits for note in split.notes]
    return "\n".join(lines)


def _reasons(dropped: Mapping[str, int]) -> str:
    counted = [f"{count:,} {reason}" for reason, count in dropped.items() if count]
    return ", ".join(counted) or "none"


def routes_table(routes: Sequence[RouteSummary], frozen: int) -> str:
    """Per parameter group: tensors, parameters, learning rate, decay, updates; then the frozen."""
    rows = [
        (
            route.route,
            route.group,
            route.tensors,
            route.parameters,
            f"{route.learning_rate:.3g}",
            f"{route.weight_decay:.3g}",
            route.scheduled_updates,
            route.warmup_updates,
            *([route.frozen] if any(row.frozen for row in routes) else []),
        )
        for route in routes
    ]
    headers: tuple[str, ...] = (
        "route",
        "group",
        "tensors",
        "parameters",
        "learning rate",
        "decay",
        "updates",
        "warm-up",
    )
    if any(route.frozen for route in routes):
        headers += ("frozen",)
    trains = sum(route.parameters for route in routes)
    total = trains + frozen
    line = f"trains {trains:,} of {total:,} parameters ({100 * trains / max(1, total):.1f} %)"
    return f"{table(headers, rows)}\n{line}"
