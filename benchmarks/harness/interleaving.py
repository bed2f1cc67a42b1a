"""Systems one after the other in every round, in turning order, so that drift hits all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Work = Callable[[], object]


def turning(names: Sequence[str], turn: int) -> list[str]:
    """The names, beginning with another one every round."""
    first = turn % len(names)
    return [*names[first:], *names[:first]]


def interleave(
    works: Mapping[str, Work],
    rounds: int,
    *,
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of every work, one entry a round.

    Args:
        works: what to run, by the system's name. One that returns a ``float`` has measured itself
            and that is its figure; of any other the whole call is timed.
        rounds: how often each runs.
        warm_up: run each once before, so that imports, caches and first calls are left out.
        clock: ``time.perf_counter``, or ``time.process_time`` for work on one thread, whose CPU
            time is the same on a busy machine.

    Raises:
        ValueError: there is nothing to run or no round.
    """
    if not works or rounds < 1:
        raise ValueError(f"{len(works)} systems and {rounds} rounds; expected at least one of each")
    names = list(works)
    if warm_up:
        for name in names:
            works[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in turning(names, turn):
            gc.collect()
            began = clock()
            found = works[name]()
            spent = clock() - began
            seconds[name].append(found if isinstance(found, float) else spent)
    return seconds


def ratio(seconds: Sequence[float], base: Sequence[float]) -> float:
    """Median over the rounds of the ratio within a round.

    Raises:
        ValueError: the two were not measured in the same rounds.
    """
    if len(seconds) != len(base):
        raise ValueError(f"{len(seconds)} rounds against {len(base)}; expected as many")
    return statistics.median(a / b for a, b in zip(seconds, base, strict=True))
