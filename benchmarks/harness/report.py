"""Short tables for people who run one measurement alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence


def step_table(ours: Sequence[float], plain: Sequence[float]) -> str:
    """Median milliseconds of a step of both loops."""
    return ratio_table({"plain loop": plain, "voicehub": ours}, "plain loop", 1e3, "ms a step")


def ratio_table(
    seconds: Mapping[str, Sequence[float]], baseline: str, scale: float, unit: str
) -> str:
    """Median, least and most of every system, and the median's ratio to the baseline's."""
    base = statistics.median(seconds[baseline])
    lines = [f"{'system':32}{unit:>14}{'min':>10}{'max':>10}{'ratio':>8}"]
    for name, values in seconds.items():
        middle = statistics.median(values)
        lines.append(
            f"{name:32}{scale * middle:14.2f}{scale * min(values):10.2f}"
            f"{scale * max(values):10.2f}{middle / base:8.3f}"
        )
    return "\n".join(lines)
