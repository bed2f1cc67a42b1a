"""Labels of a split, and what of it cannot be learnt or scored: found before the first step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voicehub.adapters.experiment import SplitReport
from voicehub.errors import DataError
from voicehub_asr_ctc.config import CTCDataConfig
from voicehub_asr_ctc.data.coverage import Coverage, explain
from voicehub_asr_ctc.data.transcripts import TranscriptNormalizer
from voicehub_asr_ctc.decoding.forced import minimum_frames
from voicehub_asr_ctc.front_ends.base import FrontEnd
from voicehub_asr_ctc.tokenizers.base import CTCTokenizer
from voicehub_data.manifest import ManifestRow
from voicehub_data.splits import SplitRows, dropped_notes

#: Durations are rounded, and resampling rounds: so many samples may be missing in the end.
_SAMPLE_TOLERANCE = 2

Labels = tuple[int, ...]


@dataclass(frozen=True)
class LabelledSplit:
    """A split that is ready for a data set.

    Attributes:
        name: of the split.
        rows, labels: kept rows and their labels, in one order.
        report: what was kept and dropped.
        coverage: how many characters have no token.
        digest: SHA-256 of the manifest's content.
    """

    name: str
    rows: list[ManifestRow]
    labels: list[Labels]
    report: SplitReport
    coverage: Coverage
    digest: str


def label_split(
    split: SplitRows,
    tokenizer: CTCTokenizer,
    front_end: FrontEnd,
    config: CTCDataConfig,
    *,
    fastest: float = 1.0,
) -> LabelledSplit:
    """Encode the transcripts of a split and sort out what cannot be aligned.

    Training rows without labels, and those whose labels need more frames than their audio has
    (played ``fastest`` times as fast, where augmentation may do that), are dropped and counted, or
    refused. Evaluation rows are kept: they are scored, and left out of the evaluation loss alone.

    Raises:
        DataError: too many characters have no token, too many rows cannot be aligned, or
            ``unalignable`` is ``error`` and one cannot.
    """
    transcripts = TranscriptNormalizer(config.text_normalizer, config.text_case)
    coverage = Coverage()
    encoded: list[Labels] = []
    for row in split.rows:
        text = transcripts(row.text)
        encoding = tokenizer.encode(text)
        coverage.add(text, encoding.unknown)
        encoded.append(encoding.ids)
    notes = [*split.notes, *_coverage_notes(split, coverage, tokenizer, config)]
    dropped = dict(split.dropped)
    reasons = [
        _reason(row, labels, front_end, fastest)
        for row, labels in zip(split.rows, encoded, strict=True)
    ]
    late = [position for position, reason in enumerate(reasons) if reason == "unalignable"]
    if late and split.training:
        _refuse_unalignable(split, encoded, late, front_end, config)
    if late and not split.training:
        notes.append(
            f"unalignable: {len(late)} rows have more labels than frames; they are scored, and "
            "left out of the evaluation loss"
        )
    kept = range(len(split.rows))
    if split.training:
        kept = [i for i in kept if reasons[i] is None]  # type: ignore[assignment]
        by_reason: dict[str, list[ManifestRow]] = {}
        for row, reason in zip(split.rows, reasons, strict=True):
            if reason is not None:
                by_reason.setdefault(reason, []).append(row)
        notes += dropped_notes(by_reason)
        dropped.update({reason: len(rows) for reason, rows in by_reason.items()})
    rows = [split.rows[i] for i in kept]
    if not rows:
        raise DataError(
            f"split {split.name!r}: every row was dropped "
            f"({', '.join(f'{count} {reason}' for reason, count in dropped.items())})."
        )
    report = split.report(rows, dropped, notes)
    labels = [encoded[i] for i in kept]
    return LabelledSplit(split.name, rows, labels, report, coverage, split.manifest.digest)


def available_frames(row: ManifestRow, front_end: FrontEnd, fastest: float = 1.0) -> int:
    """Frames that a row surely gives, also when it is played ``fastest`` times as fast."""
    samples = int((row.duration or 0.0) * front_end.sample_rate / fastest) - _SAMPLE_TOLERANCE
    return front_end.padded_frames(max(0, samples))


def _reason(row: ManifestRow, labels: Labels, front_end: FrontEnd, fastest: float) -> str | None:
    if not labels:
        return "no-labels"
    short = minimum_frames(labels) > available_frames(row, front_end, fastest)
    return "unalignable" if short else None


def _refuse_unalignable(
    split: SplitRows,
    encoded: Sequence[Labels],
    late: Sequence[int],
    front_end: FrontEnd,
    config: CTCDataConfig,
) -> None:
    """Raise where the policy is ``error`` or too many rows would go."""
    limit = config.max_drop_fraction * split.total
    if config.unalignable == "drop" and len(late) <= limit:
        return
    row, labels = split.rows[late[0]], encoded[late[0]]
    example = (
        f"{row.location}: {len(labels)} labels need {minimum_frames(labels)} frames, "
        f"{row.duration:.2f} s give {available_frames(row, front_end)} of "
        f"{1000 * front_end.frame_seconds:.0f} ms"
    )
    why = "" if config.unalignable == "error" else f", over max_drop_fraction {limit:g} rows"
    raise DataError(
        f"split {split.name!r}: {len(late)} of {split.total} rows cannot be aligned: their labels "
        f"need more frames than their audio has{why}. E.g. {example}. Check that transcripts "
        "belong to their audio and that durations are right; use a tokenizer with longer tokens "
        "(model.tokenizer.kind=bpe) or a model with shorter frames; or drop them "
        "(data.unalignable=drop, data.max_drop_fraction)."
    )


def _coverage_notes(
    split: SplitRows, coverage: Coverage, tokenizer: CTCTokenizer, config: CTCDataConfig
) -> list[str]:
    if not coverage.unknown:
        return []
    cause = explain(coverage.unknown, tokenizer)
    text = f"{cause.name}: {coverage.describe()}"
    if split.training and coverage.share > config.max_unknown_fraction:
        raise DataError(
            f"split {split.name!r}: {text}, over data.max_unknown_fraction "
            f"{config.max_unknown_fraction:g}. A model trained on what is left would learn to "
            f"write nothing or nonsense: {cause.advice}."
        )
    consequence = "left out of the labels" if split.training else "cannot be recognised"
    return [f"{text}; they are {consequence}. To change that, {cause.advice}"]
