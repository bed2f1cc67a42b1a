"""The definition: loops in Python floats, for tests and for reading."""

from __future__ import annotations

import math
from collections.abc import Sequence


def maximum_path(scores: Sequence[Sequence[float]]) -> list[int]:
    """Text position of every frame on the best monotonic path of one item.

    A path begins at the first position in the first frame, ends at the last in the last, and from
    frame to frame stays or moves on by one; it maximises the sum of its scores (Kim et al. 2020,
    Glow-TTS, algorithm 1). Where staying and moving have brought equal sums, it stayed. A sum that
    is not a number counts as minus infinity.

    Args:
        scores: a row for each of T text positions, of F >= T frames each.
    """
    text, frames = len(scores), len(scores[0])
    best = [[-math.inf] * text for _ in range(frames)]
    for frame in range(frames):
        for position in range(min(text, frame + 1)):
            before = 0.0
            if frame:
                stay = best[frame - 1][position]
                step = best[frame - 1][position - 1] if position else -math.inf
                before = max(stay, step)
            total = before + scores[position][frame]
            best[frame][position] = -math.inf if math.isnan(total) else total
    path = [0] * frames
    position = text - 1
    for frame in reversed(range(frames)):
        path[frame] = position
        if position and (
            position == frame or best[frame - 1][position - 1] > best[frame - 1][position]
        ):
            position -= 1
    return path
