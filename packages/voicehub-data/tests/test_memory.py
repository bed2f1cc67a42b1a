"""Kept items: what is made once, what no longer fits, and what may not be written to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from voicehub_data.memory import ItemMemory


class Clip(NamedTuple):
    rows: torch.Tensor
    valid: int


class Maker:
    """Counts what it makes."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def clip(self, index: int) -> tuple[Clip, float]:
        self.made.append(index)
        return Clip(torch.full((5,), float(index)), 5), 0.5


def test_values_are_made_once_while_there_is_room():
    memory: ItemMemory[tuple[Clip, float]] = ItemMemory(2 * 5 * 4)
    maker = Maker()
    for _ in range(2):
        for index in (3, 1, 2):
            clip, seconds = memory.get(index, lambda index=index: maker.clip(index))
            assert (clip.rows == index).all() and seconds == 0.5
    assert maker.made == [3, 1, 2, 2], "two clips of 20 bytes fit, the third is made every time"
    assert len(memory) == 2


def test_a_smaller_value_still_fits_behind_one_that_did_not():
    memory: ItemMemory[np.ndarray] = ItemMemory(10)
    for index, size in enumerate((8, 4, 2)):
        memory.get(index, lambda size=size: np.zeros(size, np.uint8))
    assert len(memory) == 2


def test_kept_arrays_are_read_only_and_others_are_not():
    memory: ItemMemory[np.ndarray] = ItemMemory(8)
    kept = memory.get(0, lambda: np.zeros(8, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1
    memory.get(1, lambda: np.zeros(8, np.uint8))[0] = 1


def test_no_room_keeps_nothing():
    memory: ItemMemory[np.ndarray] = ItemMemory(0)
    memory.get(0, lambda: np.zeros(1, np.uint8))
    assert len(memory) == 0
