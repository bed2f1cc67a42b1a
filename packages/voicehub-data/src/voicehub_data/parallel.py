"""Order-keeping parallel map over threads: decoding releases the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def default_workers() -> int:
    """Threads for reading headers on this machine: processors, at most eight."""
    return min(8, os.cpu_count() or 1)


def map_parallel(
    function: Callable[[Item], Result], items: Sequence[Item], *, workers: int
) -> Iterator[Result]:
    """``map(function, items)`` in order, by ``workers`` threads; 0 or 1 stays in this thread."""
    if workers <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(function, items)
