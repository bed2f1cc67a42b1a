"""From a manifest to an evaluation report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.errors import DataError
from voicehub.models.results import EvaluationReport, PredictionRow
from voicehub_asr_llm.evaluating.scoring import Failed, Hypothesis, Outcome, score
from voicehub_asr_llm.evaluating.seen import SeenIds
from voicehub_data.by_length import run_by_length
from voicehub_data.evaluation_rows import evaluation_notes, evaluation_rows
from voicehub_data.manifest import ManifestRow
from voicehub_data.metrics import prediction_row
from voicehub_data.row_audio import load_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Recognise = Callable[[Sequence["NDArray[np.float32]"]], "Sequence[Hypothesis | Failed]"]
"""From recordings at the model's rate to a result each. What it raises ends the evaluation."""


def evaluate_manifest(
    recognise: Recognise,
    manifest: str | Path,
    *,
    sample_rate: int,
    batch_size: int = 8,
    max_samples: int | None = None,
    normalizer: str,
    seen: SeenIds | None = None,
    allow_seen: bool = False,
) -> EvaluationReport:
    """Recognise a manifest and count errors.

    Rows that cannot be read or recognised are in ``dropped`` by reason and in ``failures``; they
    are no empty hypotheses. No row is left out for its length or its text.

    Args:
        recognise: the model.
        manifest: what ``read_manifest`` reads.
        sample_rate: Hz that the model works at.
        batch_size: recordings at once.
        max_samples: only the first so many.
        normalizer: of both sides of the word error rate.
        seen: ids that the model was trained on.
        allow_seen: measure on them all the same.

    Raises:
        DataError: rows were trained on, or none can be read.
    """
    rows, dropped, left_out = evaluation_rows(manifest, max_samples)
    if seen is not None and not allow_seen:
        _refuse_seen(manifest, rows, seen)
    outcomes = recognise_rows(
        recognise, rows, sample_rate=sample_rate, batch_size=batch_size, unread=left_out
    )
    scores = score(outcomes, normalizer)
    dropped.update(scores.failures)
    if scores.metrics["failures"] == len(rows):
        reasons = ", ".join(f"{count} {reason}" for reason, count in scores.failures.items())
        raise DataError(f"{manifest}: no row could be recognised ({reasons}).")
    return EvaluationReport(
        scores.metrics,
        prediction_rows(outcomes, normalizer),
        dict(dropped),
        notes=evaluation_notes(rows, left_out),
        tables={"by source": scores.sources} if scores.sources else {},
    )


def recognise_rows(
    recognise: Recognise,
    rows: Sequence[ManifestRow],
    *,
    sample_rate: int,
    batch_size: int,
    unread: list[str] | None = None,
) -> list[Outcome]:
    """Recognise rows in batches of similar lengths; results come in the order of the rows.

    What is said of rows that cannot be read is added to ``unread``.
    """

    def run(batch: list[ManifestRow]) -> list[Hypothesis | Failed]:
        waves, failures = load_rows(batch, sample_rate)
        if unread is not None:
            unread.extend(failures)
        heard = [wave for wave in waves if wave is not None]
        found = iter(recognise(heard) if heard else ())
        return [Failed("unreadable-audio") if wave is None else next(found) for wave in waves]

    results = run_by_length(rows, batch_size, run, length=lambda row: row.duration or 0.0)
    return [Outcome(row, result) for row, result in zip(rows, results, strict=True)]


def prediction_rows(outcomes: Sequence[Outcome], normalizer: str) -> list[PredictionRow]:
    """Rows with a hypothesis, both texts normalised."""
    return [
        prediction_row(row, result.text, normalizer=normalizer)
        for row, result in outcomes
        if isinstance(result, Hypothesis)
    ]


def report_rows(
    recognise: Recognise,
    rows: Sequence[ManifestRow],
    count: int,
    *,
    sample_rate: int,
    normalizer: str,
    batch_size: int = 8,
    among: int = 64,
) -> list[PredictionRow]:
    """What a report shows: the worst utterances first, then some as they come.

    Args:
        recognise: the model.
        rows: of an evaluation split.
        count: how many to return; half of them, rounded up, are the worst.
        among: rows that are recognised to find them, evenly spaced.
    """
    looked_at = min(max(among, count), len(rows))
    chosen = [rows[i * len(rows) // looked_at] for i in range(looked_at)]
    outcomes = recognise_rows(recognise, chosen, sample_rate=sample_rate, batch_size=batch_size)
    done = prediction_rows(outcomes, normalizer)
    worst = sorted((row for row in done if row.errors), key=_badness, reverse=True)
    worst = worst[: (count + 1) // 2]
    others = [row for row in done if row not in worst]
    left = min(count - len(worst), len(others))
    return worst + [others[i * len(others) // left] for i in range(left)]


def _badness(row: PredictionRow) -> tuple[float, int]:
    """Errors per reference word first: a short utterance that is all wrong is a bad one."""
    return row.errors / max(1, row.words), row.errors


def _refuse_seen(manifest: Any, rows: Sequence[ManifestRow], seen: SeenIds) -> None:
    same = seen.among(row.id for row in rows)
    if same:
        shown = ", ".join(repr(name) for name in same[:5]) + (", ..." if same[5:] else "")
        raise DataError(
            f"{manifest}: {len(same)} of {len(rows)} rows have ids that the model was trained on "
            f"({shown}). Measure on other data; to measure on it all the same, or where corpora "
            "only number their recordings alike, pass --allow-seen (allow_seen=True)."
        )
