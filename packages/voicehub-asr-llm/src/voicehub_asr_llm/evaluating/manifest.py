"""From a manifest to an evaluation report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.errors import DataError
from voicehub.models.results import EvaluationReport, PredictionRow
from voicehub_asr_llm.evaluating.scoring import Failed, Hypothesis, Outcome, score
from voicehub_asr_llm.evaluating.seen import SeenIds
from voicehub_data.audio import load_audio
from voicehub_data.manifest import ManifestRow, read_manifest
from voicehub_data.metrics import prediction_row

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
    read = read_manifest(manifest, role="eval", strict=False)
    dropped: Counter[str] = Counter(problem.kind for problem in read.problems)
    duplicated = {(p.source, p.row) for p in read.problems if p.kind == "duplicate-id"}
    rows = [row for row in read.rows if (row.source, row.row) not in duplicated]
    rows = rows if max_samples is None else rows[:max_samples]
    if not rows:
        raise DataError(f"{manifest}: the manifest holds no usable row.")
    if seen is not None and not allow_seen:
        _refuse_seen(manifest, rows, seen)
    outcomes = recognise_rows(recognise, rows, sample_rate=sample_rate, batch_size=batch_size)
    scores = score(outcomes, normalizer)
    dropped.update(scores.failures)
    if scores.metrics["failures"] == len(rows):
        reasons = ", ".join(f"{count} {reason}" for reason, count in scores.failures.items())
        raise DataError(f"{manifest}: no row could be recognised ({reasons}).")
    return EvaluationReport(
        scores.metrics,
        prediction_rows(outcomes, normalizer),
        dict(dropped),
        tables={"by source": scores.sources} if scores.sources else {},
    )


def recognise_rows(
    recognise: Recognise,
    rows: Sequence[ManifestRow],
    *,
    sample_rate: int,
    batch_size: int,
) -> list[Outcome]:
    """Recognise rows in batches of similar lengths; results come in the order of the rows."""
    order = sorted(range(len(rows)), key=lambda position: rows[position].duration or 0.0)
    results: list[Hypothesis | Failed | None] = [None] * len(rows)
    for start in range(0, len(order), batch_size):
        taken, waves = [], []
        for position in order[start : start + batch_size]:
            wave = _audio(rows[position], sample_rate)
            if wave is None:
                results[position] = Failed("unreadable-audio")
            else:
                taken.append(position)
                waves.append(wave)
        if waves:
            for position, result in zip(taken, recognise(waves), strict=True):
                results[position] = result
    return [
        Outcome(row, result)
        for row, result in zip(rows, results, strict=True)
        if result is not None
    ]


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


def _audio(row: ManifestRow, sample_rate: int) -> NDArray[np.float32] | None:
    """The audio of a row, or None where it cannot be decoded; other errors are no failures."""
    try:
        return load_audio(
            row.audio_filepath, sample_rate=sample_rate, offset=row.offset, duration=row.duration
        )
    except DataError:
        return None
