"""What was made for an item, kept in memory while there is room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

Value = TypeVar("Value")


class ItemMemory(Generic[Value]):
    """Keeps values by index. What was kept once stays; what no longer fits is made every time.

    Args:
        room: bytes of the tensors and arrays that are kept, in each process.
    """

    def __init__(self, room: int) -> None:
        self._kept: dict[int, Value] = {}
        self._room = room

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, index: int, make: Callable[[], Value]) -> Value:
        """Return the value of an index; it is made where it is not kept.

        A value that is kept is handed out again and again: arrays become read-only, and tensors
        must not be written to.
        """
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        made = make()
        size = _bytes(made)
        if size <= self._room:
            if isinstance(made, np.ndarray):
                made.flags.writeable = False
            self._kept[index] = made
            self._room -= size
        return made


def _bytes(value: Any) -> int:
    """Of arrays and tensors, alone or in tuples; what else is there counts nothing."""
    if isinstance(value, tuple):
        return sum(map(_bytes, value))
    return int(getattr(value, "nbytes", 0))
