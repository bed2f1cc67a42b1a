"""Where utterances lie in the rows of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from voicehub.data.packing import pack_lengths

Packing = Literal["none", "rows", "batch"]


@dataclass(frozen=True)
class Placed:
    """Rows of utterances that see nothing of each other.

    Attributes:
        places: row and first step of each utterance.
        positions: int64 (rows, steps), counting from 0 in each utterance; what follows the last
            one counts from 0 too, as an utterance of its own, which ends the attention of
            transformers at its start.
        filled: share of the steps that hold an utterance.
    """

    places: list[tuple[int, int]]
    positions: Tensor
    filled: float


def place(lengths: Sequence[int], packing: Packing, capacity: int) -> Placed:
    """Place utterances.

    Args:
        lengths: steps of each.
        packing: ``none``: a row each; ``rows``: rows of at most ``capacity`` steps; ``batch``:
            one row.
        capacity: an utterance over it has a row of its own.
    """
    rows = _rows(lengths, packing, capacity)
    steps = max(sum(lengths[item] for item in row) for row in rows)
    positions = torch.zeros(len(rows), steps, dtype=torch.long)
    places = [(0, 0)] * len(lengths)
    for number, row in enumerate(rows):
        first = 0
        for item in row:
            length = lengths[item]
            positions[number, first : first + length] = torch.arange(length)
            places[item] = (number, first)
            first += length
        positions[number, first:] = torch.arange(steps - first)
    return Placed(places, positions, sum(lengths) / (len(rows) * steps))


def _rows(lengths: Sequence[int], packing: Packing, capacity: int) -> list[list[int]]:
    """Which items share a row; the result depends on the lengths alone."""
    if packing == "none":
        return [[item] for item in range(len(lengths))]
    if packing == "batch":
        return [list(range(len(lengths)))]
    return pack_lengths(lengths, capacity)
