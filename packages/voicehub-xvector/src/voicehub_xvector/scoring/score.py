"""Scores of a list of trials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from voicehub.errors import DataError
from voicehub_data.files import write_file
from voicehub_xvector.embeddings import EmbeddingTable
from voicehub_xvector.metrics.verification import Verification, verify_scores
from voicehub_xvector.scoring.as_norm import cohort_statistics
from voicehub_xvector.scoring.backends import Backend
from voicehub_xvector.scoring.trials import TrialList, locate

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class ScoredTrials:
    """Trials with their scores, float64 (trials,), in the order of the list."""

    trials: TrialList
    scores: NDArray[np.float64]

    def verification(self) -> Verification | None:
        """Error rates; None where the list has no labels.

        Raises:
            DataError: the list holds only trials of one kind.
        """
        if self.trials.labels is None:
            return None
        return verify_scores(self.scores, self.trials.labels)

    def write(self, path: Path) -> None:
        """Write ``left right score`` a line."""
        names, left, right = self.trials.names, self.trials.left, self.trials.right
        rows = zip(left.tolist(), right.tolist(), self.scores.tolist(), strict=True)
        lines = (f"{names[a]} {names[b]} {score:.9g}\n" for a, b, score in rows)
        write_file(path, "".join(lines).encode())


def score_trials(
    trials: TrialList,
    table: EmbeddingTable,
    backend: Backend,
    *,
    cohort: EmbeddingTable | None = None,
    top: int = 300,
    source: object = "the embeddings",
) -> ScoredTrials:
    """Score every trial.

    Args:
        trials: list with names of recordings.
        table: their embeddings.
        backend: compares two.
        cohort: embeddings for AS-norm; None: scores as the backend gives them.
        top: cohort scores that count; all where the cohort is smaller.
        source: file of the table, for messages.

    Raises:
        DataError: a name has no embedding, or cohort and trials share recordings.
    """
    rows = locate(trials, table, source)
    used, inverse = np.unique(rows, return_inverse=True)
    prepared = backend.prepare(table.vectors[used])
    left, right = inverse[trials.left], inverse[trials.right]
    scores = np.empty(len(trials))
    for block in _blocks(len(trials)):
        scores[block] = backend.pairs(prepared[left[block]], prepared[right[block]])
    if cohort is not None:
        _check_apart([table.ids[row] for row in used], cohort)
        others = backend.prepare(cohort.vectors)
        statistics = cohort_statistics(backend, prepared, others, top=min(top, len(cohort)))
        scores = statistics.apply(scores, left, right)
    return ScoredTrials(trials, scores)


def _blocks(count: int) -> Iterator[slice]:
    yield from (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))


def _check_apart(ids: list[str], cohort: EmbeddingTable) -> None:
    shared = sorted(set(ids) & set(cohort.ids))
    if shared:
        raise DataError(
            f"The cohort holds {len(shared)} recordings of the trials, {shared[0]!r} among them: "
            "normalised by themselves, their scores mean nothing. Use other speakers."
        )
