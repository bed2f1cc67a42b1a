"""Error rates over what was recognised; what could not be is counted, never scored as nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from voicehub_data.manifest import ManifestRow
from voicehub_data.metrics import character_error_rate, word_error_rate

#: Both sides keep case and punctuation.
ORTHOGRAPHIC = "orthographic"
#: Columns of a manifest that say which corpus of a mixed one a row is of.
_SOURCE_COLUMNS = ("source", "dataset", "corpus")


class Hypothesis(NamedTuple):
    """What was recognised.

    Attributes:
        text: as the model wrote it; it may be empty.
        finished: the model ended it itself; else a limit on length or repetition did.
    """

    text: str
    finished: bool = True


class Failed(NamedTuple):
    """A row without a hypothesis, and why in a word or two."""

    reason: str


class Outcome(NamedTuple):
    """A row and what became of it."""

    row: ManifestRow
    result: Hypothesis | Failed


@dataclass(frozen=True)
class Scores:
    """Figures of a set of rows.

    Attributes:
        metrics: ``wer`` (corpus: all edits over all reference words), ``orthographic_wer``,
            ``cer``, ``empty_share``, ``unfinished_share`` and ``failures``.
        failures: rows without a hypothesis, by reason.
        sources: the same figures by source, where there is more than one: rows of a table.
    """

    metrics: dict[str, float]
    failures: dict[str, int]
    sources: list[dict[str, Any]]


def score(outcomes: Sequence[Outcome], normalizer: str) -> Scores:
    """Count errors over all rows that have a hypothesis.

    Args:
        outcomes: of all rows; failures among them are counted apart.
        normalizer: name of the text normaliser that both sides of ``wer`` go through.
    """
    failures = Counter(o.result.reason for o in outcomes if isinstance(o.result, Failed))
    by_source: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_source.setdefault(source_of(outcome.row), []).append(outcome)
    tables = []
    if len(by_source) > 1:
        tables = [
            {"source": name, "rows": len(rows), **_figures(rows, normalizer)}
            for name, rows in sorted(by_source.items())
        ]
    return Scores(_figures(outcomes, normalizer), dict(failures), tables)


def source_of(row: ManifestRow) -> str:
    """What a row is counted under: column ``source``, ``dataset`` or ``corpus``, or its file."""
    for column in _SOURCE_COLUMNS:
        value = row.extra.get(column)
        if isinstance(value, str) and value:
            return value
    return row.source.stem


def _figures(outcomes: Sequence[Outcome], normalizer: str) -> dict[str, float]:
    done = [(o.row, o.result) for o in outcomes if isinstance(o.result, Hypothesis)]
    metrics: dict[str, float] = {}
    if done:
        references = [row.text for row, _ in done]
        texts = [hypothesis.text for _, hypothesis in done]
        rates = {
            "wer": word_error_rate(references, texts, normalizer=normalizer).rate,
            "orthographic_wer": word_error_rate(references, texts, normalizer=ORTHOGRAPHIC).rate,
            "cer": character_error_rate(references, texts, normalizer=normalizer).rate,
        }
        # No reference word, no rate: a set of silence has its share of empty hypotheses instead.
        metrics = {name: rate for name, rate in rates.items() if not math.isnan(rate)}
        metrics["empty_share"] = sum(not text.strip() for text in texts) / len(done)
        metrics["unfinished_share"] = sum(not h.finished for _, h in done) / len(done)
    metrics["failures"] = float(len(outcomes) - len(done))
    return metrics
