"""Measuring embeddings of an evaluation split by their pairs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from voicehub_xvector.metrics.verification import Verification, verify_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray


class EmbeddingRow(NamedTuple):
    """One evaluated utterance.

    Attributes:
        id: of its row.
        speaker: its name.
        embedding: float32 (D,).
    """

    id: str
    speaker: str
    embedding: NDArray[np.float32]


def verify_rows(rows: Sequence[EmbeddingRow]) -> Verification:
    """Judge the cosines of all pairs of rows."""
    return verify_pairs(np.stack([row.embedding for row in rows]), [row.speaker for row in rows])


def pair_metrics(rows: Sequence[EmbeddingRow], known: Collection[str]) -> dict[str, float]:
    """Return error rates over all pairs.

    Args:
        rows: of one split.
        known: speakers that the model was trained to tell apart.

    Returns:
        ``eer`` and the costs of ``Verification.metrics``. Where some speakers are known and some
        are not, also ``known_eer`` and ``unseen_eer``, over the pairs within each kind.
    """
    metrics = verify_rows(rows).metrics()
    groups = {
        "known": [row for row in rows if row.speaker in known],
        "unseen": [row for row in rows if row.speaker not in known],
    }
    if all(groups.values()):
        for name, group in groups.items():
            if _has_both_kinds(group):
                metrics[f"{name}_eer"] = verify_rows(group).eer
    return metrics


def _has_both_kinds(rows: Sequence[EmbeddingRow]) -> bool:
    speakers = {row.speaker for row in rows}
    return 1 < len(speakers) < len(rows)
