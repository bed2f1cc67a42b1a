"""Align a hypothesis with its reference word by word, to mark the errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Operation = Literal["equal", "substitute", "delete", "insert"]


@dataclass(frozen=True)
class AlignedWord:
    """One position: ``reference`` is None for an insertion, ``hypothesis`` for a deletion."""

    operation: Operation
    reference: str | None
    hypothesis: str | None


def align_words(reference: str, hypothesis: str) -> list[AlignedWord]:
    """An alignment with the fewest substitutions, deletions and insertions (Levenshtein).

    Among alignments of equal cost, the one that pairs words as far right as possible.
    """
    wanted, found = reference.split(), hypothesis.split()
    costs = _costs(wanted, found)
    row, column = len(wanted), len(found)
    path: list[AlignedWord] = []
    while row or column:
        here = costs[row][column]
        if row and column:
            same = wanted[row - 1] == found[column - 1]
            if here == costs[row - 1][column - 1] + (not same):
                operation: Operation = "equal" if same else "substitute"
                path.append(AlignedWord(operation, wanted[row - 1], found[column - 1]))
                row, column = row - 1, column - 1
                continue
        if row and here == costs[row - 1][column] + 1:
            path.append(AlignedWord("delete", wanted[row - 1], None))
            row -= 1
        else:
            path.append(AlignedWord("insert", None, found[column - 1]))
            column -= 1
    return path[::-1]


def _costs(wanted: Sequence[str], found: Sequence[str]) -> list[list[int]]:
    """``costs[i][j]``: the distance of the first ``i`` reference and ``j`` hypothesis words."""
    costs = [list(range(len(found) + 1))]
    for row, word in enumerate(wanted, start=1):
        above, line = costs[-1], [row]
        for column, other in enumerate(found, start=1):
            line.append(
                min(above[column - 1] + (word != other), above[column] + 1, line[column - 1] + 1)
            )
        costs.append(line)
    return costs
