"""Running many items in batches of similar lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Input = TypeVar("Input")
Result = TypeVar("Result")


def run_by_length(
    items: Sequence[Input],
    batch_size: int,
    run: Callable[[list[Input]], Sequence[Result]],
    *,
    length: Callable[[Input], float],
) -> list[Result]:
    """Run items that are about as long together, the shortest first.

    Args:
        items: what is run.
        batch_size: items of a batch.
        run: from a batch to a result each, in its order.
        length: of an item, in any unit.

    Returns:
        The results, in the order of the items.
    """
    order = sorted(range(len(items)), key=lambda position: length(items[position]))
    found: dict[int, Result] = {}
    for start in range(0, len(order), batch_size):
        taken = order[start : start + batch_size]
        results = run([items[position] for position in taken])
        found.update(zip(taken, results, strict=True))
    return [found[position] for position in range(len(items))]
