"""Align a hypothesis with its reference word by word, to mark the errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Costs are whole numbers. An error outweighs the bonuses of any sentence that is worth showing.
_ERROR = 1_000_000
_LARGEST_BONUS = 20

Operation = Literal["equal", "substitute", "delete", "insert"]


@dataclass(frozen=True)
class AlignedWord:
    """One position: ``reference`` is None for an insertion, ``hypothesis`` for a deletion."""

    operation: Operation
    reference: str | None
    hypothesis: str | None


def align_words(reference: str, hypothesis: str) -> list[AlignedWord]:
    """An alignment with the fewest substitutions, deletions and insertions (Levenshtein).

    Among alignments of equal cost, one that substitutes similar words for each other: "light off"
    heard as "lights" is one wrong and one missing word, in that order.
    """
    wanted, found = reference.split(), hypothesis.split()
    costs = _costs(wanted, found)
    row, column = len(wanted), len(found)
    path: list[AlignedWord] = []
    while row or column:
        here = costs[row][column]
        if row and column:
            pair = wanted[row - 1], found[column - 1]
            if here == costs[row - 1][column - 1] + _distance(*pair):
                operation: Operation = "equal" if pair[0] == pair[1] else "substitute"
                path.append(AlignedWord(operation, *pair))
                row, column = row - 1, column - 1
                continue
        if row and here == costs[row - 1][column] + _ERROR:
            path.append(AlignedWord("delete", wanted[row - 1], None))
            row -= 1
        else:
            path.append(AlignedWord("insert", None, found[column - 1]))
            column -= 1
    return path[::-1]


def _costs(wanted: Sequence[str], found: Sequence[str]) -> list[list[int]]:
    """``costs[i][j]``: the distance of the first ``i`` reference and ``j`` hypothesis words."""
    costs = [[_ERROR * column for column in range(len(found) + 1)]]
    for row, word in enumerate(wanted, start=1):
        above, line = costs[-1], [_ERROR * row]
        for column, other in enumerate(found, start=1):
            line.append(
                min(
                    above[column - 1] + _distance(word, other),
                    above[column] + _ERROR,
                    line[column - 1] + _ERROR,
                )
            )
        costs.append(line)
    return costs


def _distance(word: str, other: str) -> int:
    """One error for different words, less a trifle for what they have in common at the start."""
    if word == other:
        return 0
    common = 0
    for left, right in zip(word, other, strict=False):
        if left != right:
            break
        common += 1
    return _ERROR - min(common, _LARGEST_BONUS)
