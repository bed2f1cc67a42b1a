"""Samples of a case, and datasets over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from voicehub.data.keyed_random import numpy_generator

if TYPE_CHECKING:
    from voicehub.testing.case import ConformanceCase


class CaseDataset:
    """A fixed list of samples."""

    deterministic = True

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def draw_items(case: ConformanceCase, size: int, seed: int, *, equal: bool = False) -> list[Any]:
    """Return samples of unequal lengths, or of one length where the case cannot bear padding."""
    shortest, longest = case.lengths
    if equal or "padding_mates" in case.exemptions:
        lengths = [(shortest + longest) // 2] * size
    else:
        drawn = numpy_generator("conformance", seed).integers(shortest, longest + 1, size)
        lengths = [int(length) for length in drawn]
    return [case.item(length, seed * 100_003 + i) for i, length in enumerate(lengths)]
