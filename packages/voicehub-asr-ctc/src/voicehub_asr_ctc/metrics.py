"""Error rates and signs of collapse over recognised utterances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from voicehub.models.results import PredictionRow
from voicehub_data import metrics
from voicehub_data.manifest import ManifestRow
from voicehub_data.metrics import character_error_rate, word_error_rate


class EvaluationRow(NamedTuple):
    """One recognised utterance.

    Attributes:
        id: of its row.
        reference, hypothesis: texts as they are, not normalised.
        frames: the model gave.
        blanks: of them on the best path.
        unalignable: the reference has more labels than there are frames.
    """

    id: str
    reference: str
    hypothesis: str
    frames: int
    blanks: int
    unalignable: bool = False


def error_rates(rows: Sequence[EvaluationRow], normalizer: str) -> dict[str, float]:
    """Return ``wer``, ``cer``, ``empty_share`` and ``blank_share``.

    ``empty_share`` is the share of empty hypotheses, ``blank_share`` that of blank frames. Rates
    are left out where the references hold no word.
    """
    if not rows:
        return {}
    references = [row.reference for row in rows]
    hypotheses = [row.hypothesis for row in rows]
    words = word_error_rate(references, hypotheses, normalizer=normalizer)
    characters = character_error_rate(references, hypotheses, normalizer=normalizer)
    metrics = {"wer": words.rate, "cer": characters.rate}
    metrics = {name: rate for name, rate in metrics.items() if not math.isnan(rate)}
    metrics["empty_share"] = sum(not row.hypothesis.strip() for row in rows) / len(rows)
    frames = sum(row.frames for row in rows)
    metrics["blank_share"] = sum(row.blanks for row in rows) / frames if frames else 0.0
    unalignable = sum(row.unalignable for row in rows)
    if unalignable:
        metrics["unalignable"] = float(unalignable)
    return metrics


def prediction_row(item: EvaluationRow, row: ManifestRow, normalizer: str) -> PredictionRow:
    """Return what a report shows of a recognised row: both texts normalised, errors counted."""
    return metrics.prediction_row(row, item.hypothesis, normalizer=normalizer)
