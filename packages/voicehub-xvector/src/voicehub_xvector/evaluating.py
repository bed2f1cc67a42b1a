"""``voicehub eval``: a manifest to error rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.errors import ConfigurationError, DataError
from voicehub.models.results import EvaluationReport
from voicehub_data.evaluation_rows import evaluation_notes
from voicehub_data.manifest import ManifestRow, read_manifest
from voicehub_data.row_audio import load_rows
from voicehub_xvector.embeddings import EmbeddingTable
from voicehub_xvector.metrics.verification import Verification
from voicehub_xvector.scoring.backends import Cosine
from voicehub_xvector.scoring.score import score_trials
from voicehub_xvector.scoring.trials import read_trials
from voicehub_xvector.verification import EmbeddingRow, pair_metrics, verify_rows

if TYPE_CHECKING:
    from voicehub_xvector.embedder import XVectorModel

#: Recordings that are read before they are embedded, similar lengths together.
_READ_AHEAD = 64


def evaluate_manifest(
    model: XVectorModel,
    manifest: str | Path,
    *,
    batch_size: int,
    max_samples: int | None,
    options: dict[str, Any],
) -> EvaluationReport:
    """Embed a manifest and verify all pairs, or the trials of a list, by cosine.

    A row whose audio cannot be read, or without a speaker where pairs are made, is counted in
    ``dropped``.

    Raises:
        DataError: nothing is left to verify, or the list names a recording that is not there.
        ConfigurationError: an option is unknown.
    """
    options = dict(options)
    trials = options.pop("trials", None)
    if options:
        raise ConfigurationError(
            f"speaker models take the option 'trials' alone, got {', '.join(sorted(options))}."
        )
    read = read_manifest(manifest, role="eval", strict=False)
    dropped: Counter[str] = Counter(problem.kind for problem in read.problems)
    rows = [row for row in read.rows if trials is not None or row.speaker]
    dropped["no-speaker"] += len(read.rows) - len(rows)
    rows = rows if max_samples is None else rows[:max_samples]
    embedded, unreadable = embed_rows(model, rows, batch_size=batch_size)
    dropped["unreadable-audio"] += len(unreadable)
    if not embedded:
        lost = ", ".join(f"{count} {reason}" for reason, count in dropped.items() if count)
        cause = f" Dropped: {lost}." if lost else ""
        cause += f" The first: {unreadable[0]}" if unreadable else ""
        raise DataError(f"{manifest}: no row can be embedded.{cause}")
    by_id = {row.id: row for row in rows}
    verified: Verification
    if trials is None:
        metrics = pair_metrics(embedded, set(model.classes))
        verified = verify_rows(embedded)
    else:
        scored = score_trials(
            read_trials(trials), _table(embedded, by_id), Cosine(), source=manifest
        ).verification()
        if scored is None:
            raise DataError(f"{trials}: the trials have no labels, so there is no error to count.")
        metrics, verified = scored.metrics(), scored
    kinds = {reason: count for reason, count in dropped.items() if count}
    return EvaluationReport(
        metrics,
        [],
        kinds,
        measured=len(embedded),
        pictures=_pictures(verified),
        notes=evaluation_notes([], [*map(str, read.problems), *unreadable]),
    )


def embed_rows(
    model: XVectorModel, rows: Sequence[ManifestRow], *, batch_size: int
) -> tuple[list[EmbeddingRow], list[str]]:
    """Embed rows in their order; also return what was said of those that cannot be read."""
    results: list[EmbeddingRow] = []
    failures: list[str] = []
    for start in range(0, len(rows), _READ_AHEAD):
        part = rows[start : start + _READ_AHEAD]
        waves, unread = load_rows(part, model.sample_rate)
        failures += unread
        heard = [(row, wave) for row, wave in zip(part, waves, strict=True) if wave is not None]
        if heard:
            read = [wave for _, wave in heard]
            vectors = model.embed(read, model.sample_rate, batch_size=batch_size).numpy()
            results += [
                EmbeddingRow(row.id, str(row.speaker or ""), vector)
                for (row, _), vector in zip(heard, vectors, strict=True)
            ]
    return results, failures


def _table(embedded: Sequence[EmbeddingRow], rows: dict[str, ManifestRow]) -> EmbeddingTable:
    return EmbeddingTable.of(
        [row.id for row in embedded],
        np.stack([row.embedding for row in embedded]),
        speakers=[row.speaker for row in embedded],
        audio_filepaths=[str(rows[row.id].audio_filepath) for row in embedded],
    )


def _pictures(verified: Verification) -> dict[str, bytes]:
    from voicehub_xvector.metrics.det import det_image

    return {"det": det_image(verified.points).as_png()}
