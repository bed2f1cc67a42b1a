"""Reading one split: rows, checked files, counted drops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from voicehub.adapters.experiment import SplitReport
from voicehub.errors import DataError
from voicehub_data.check import CheckReport, check_manifest
from voicehub_data.config import DataSourceConfig, ExcludeRule, FilterConfig, SplitsConfig
from voicehub_data.durations import fill_durations
from voicehub_data.exclusion import exclude_rows
from voicehub_data.filters import filter_split
from voicehub_data.manifest import Manifest, ManifestRow, read_manifest
from voicehub_data.manifest.join import join_manifests

#: ``check: auto`` decodes a split of up to so many seconds, and reads headers of a larger one.
_DECODE_SECONDS = 7200.0
_RATE_KEYS = ("sample_rate", "sampling_rate", "samplerate")
#: How notes tell audio of a lower rate than the model's.
NARROW_BAND = "which has nothing above"
_SHOWN = {
    "multi-channel": "averaged to one channel",
    "clipped": "clipped",
    "silent": "silent",
    "duplicate-content": "the same audio as an earlier row",
}


class SplitSettings(Protocol):
    """What reading a split asks of a family's data section.

    Attributes:
        check: look at every audio file: ``headers`` alone, ``decode`` all of it, ``auto`` (decode
            up to two hours of audio) or ``none``.
        workers: threads that read audio files.
        max_drop_fraction: stop when more than this share of a split is unusable.
        filters: which training rows are left out.
    """

    check: Literal["auto", "headers", "decode", "none"]
    workers: int
    max_drop_fraction: float
    filters: FilterConfig


@dataclass
class SplitRows:
    """What is usable of one split.

    Attributes:
        name: of the split.
        training: whether it is trained on.
        manifest: what was read.
        rows: kept rows, all with durations.
        total: rows of the manifest, unreadable ones included.
        dropped: rows left out so far, by reason; with ``rows`` and ``excluded`` they make
            ``total``.
        excluded: rows that a rule of the configuration left out, by reason.
        notes: what a user should see before step 0.
    """

    name: str
    training: bool
    manifest: Manifest
    rows: list[ManifestRow]
    total: int
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    excluded: Counter[str] = field(default_factory=Counter)

    @property
    def wanted(self) -> int:
        """Rows that were not excluded: what the limit on dropped rows is a share of."""
        return self.total - self.excluded.total()

    def report(
        self, rows: Sequence[ManifestRow], dropped: Mapping[str, int], notes: list[str]
    ) -> SplitReport:
        """What a family says of the split.

        Args:
            rows: that it keeps.
            dropped: all that was left out, by reason.
            notes: what a user should see before step 0.
        """
        seconds = sum(row.duration or 0.0 for row in rows)
        return SplitReport(self.name, self.total, len(rows), dict(dropped), seconds, notes)


def read_split(
    name: str,
    sources: Sequence[DataSourceConfig],
    config: SplitSettings,
    *,
    training: bool,
    sample_rate: int,
    exclude: Sequence[ExcludeRule] = (),
) -> SplitRows:
    """Read the rows of a split, look at their files, filter training rows.

    Evaluation rows are dropped only where their audio cannot be read at all.

    Args:
        name: of the split.
        sources: where rows come from; they are joined.
        config: the family's data section.
        training: a training split.
        sample_rate: Hz that the model works at.
        exclude: rows that are not wanted, by their columns; they are left out before any file is
            looked at, and do not count towards ``max_drop_fraction``.

    Raises:
        DataError: a source is missing or empty, nothing is usable, or more than
            ``max_drop_fraction`` of the rows is not.
    """
    role: Literal["train", "eval"] = "train" if training else "eval"
    manifest = join_manifests([read_manifest(s, role=role, strict=False) for s in sources])
    unread = sum(problem.kind != "duplicate-id" for problem in manifest.problems)
    split = SplitRows(name, training, manifest, list(manifest.rows), len(manifest) + unread)
    split.notes += manifest.notes
    if unread:
        split.dropped["invalid-row"] = unread
        split.notes.append(f"first invalid row: {manifest.problems[0]}")
    if exclude:
        left = exclude_rows(split.rows, exclude)
        split.rows, split.manifest = left.kept, manifest.with_rows(left.kept)
        split.excluded.update(left.counts)
    if config.check != "none" and split.rows:
        _apply_check(split, config, sample_rate)
    _require_usable(split, config)
    rows = manifest.with_rows(split.rows)
    split.rows = list(fill_durations(rows, workers=config.workers).rows)
    filtered = filter_split(split.rows, config.filters, training=training, name=f"split {name!r}")
    split.dropped.update(filtered.counts)
    split.notes += dropped_notes(filtered.dropped)
    split.rows = filtered.kept
    return split


def read_splits(config: SplitsConfig, *, sample_rate: int) -> list[SplitRows]:
    """Read the training split, then every evaluation split; see :func:`read_split`."""
    evals = [(name, [source]) for name, source in config.eval.items()]
    return [
        read_split(name, sources, config, training=position == 0, sample_rate=sample_rate)
        for position, (name, sources) in enumerate([("train", config.train), *evals])
    ]


def dropped_notes(dropped: Mapping[str, Sequence[ManifestRow]]) -> list[str]:
    """The first row that was dropped for each reason, and how many more were."""
    notes = []
    for reason, rows in dropped.items():
        more = f", and {len(rows) - 1:,} more" if len(rows) > 1 else ""
        notes.append(f"dropped: {rows[0].location}: {reason}{more}")
    return notes


def _apply_check(split: SplitRows, config: SplitSettings, sample_rate: int) -> None:
    manifest = split.manifest
    known = sum(row.duration is not None for row in manifest.rows)
    small = known == len(manifest.rows) and manifest.total_seconds <= _DECODE_SECONDS
    decode = config.check == "decode" or (config.check == "auto" and small)
    report = check_manifest(
        manifest, sample_rate=sample_rate, workers=config.workers, decode=decode
    )
    kept = report.sort_rows(split.rows)
    split.rows = kept.kept
    split.dropped.update(kept.counts)
    first = {item.kind: item for item in reversed(report.errors)}
    split.notes += [f"dropped: {first[kind]}" for kind in kept.counts if kind in first]
    split.notes += _notes(report, sample_rate)
    split.notes += _declared_rates(split.rows, sample_rate, report)


def _notes(report: CheckReport, sample_rate: int) -> list[str]:
    """Warnings of the check, counted, and the sample rates."""
    rates = Counter(
        item.message.split(" Hz", 1)[0] for item in report.findings if item.kind == "wrong-rate"
    )
    notes = [
        f"wrong-rate: {count} rows have {rate} Hz; resampled to {sample_rate} Hz"
        + (
            f", {NARROW_BAND} {int(rate) // 2} Hz to show a model of {sample_rate} Hz"
            if rate.isdigit() and int(rate) < sample_rate
            else ""
        )
        for rate, count in rates.most_common()
    ]
    counts = report.counts
    notes += [
        f"{kind}: {counts[kind]} rows {what}" for kind, what in _SHOWN.items() if kind in counts
    ]
    return notes


def _declared_rates(
    rows: Sequence[ManifestRow], sample_rate: int, report: CheckReport
) -> list[str]:
    """A manifest that states another rate than its files have is wrong about its durations too."""
    actual = {
        (item.source, item.row): item.message.split(" Hz", 1)[0]
        for item in report.findings
        if item.kind == "wrong-rate"
    }
    wrong = [
        (row, stated, found)
        for row in rows
        if (stated := _stated_rate(row)) is not None
        and stated != (found := int(actual.get((row.source, row.row), sample_rate)))
    ]
    if not wrong:
        return []
    row, stated, found = wrong[0]
    return [
        f"manifest-rate: {len(wrong)} rows state another sample rate than their file has, e.g. "
        f"{row.location}: {stated} Hz stated, {found} Hz found; the file's is used"
    ]


def _stated_rate(row: ManifestRow) -> int | None:
    for key in _RATE_KEYS:
        value: Any = row.extra.get(key)
        if isinstance(value, (int, float, str)) and str(value).isdigit():
            return int(value)
    return None


def _require_usable(split: SplitRows, config: SplitSettings) -> None:
    lost = split.dropped.total()
    reasons = ", ".join(f"{count} {kind}" for kind, count in split.dropped.items())
    shown = "\n".join(f"  {note}" for note in split.notes[:6])
    if not split.rows:
        raise DataError(
            f"split {split.name!r} ({split.manifest.path}): none of {split.wanted} rows is usable "
            f"({reasons or 'the manifest is empty'}).\n{shown}".rstrip()
        )
    if lost > config.max_drop_fraction * split.wanted:
        raise DataError(
            f"split {split.name!r} ({split.manifest.path}): {lost} of {split.wanted} rows are "
            f"unusable ({reasons}), over data.max_drop_fraction {config.max_drop_fraction:g}.\n"
            f"{shown}\nCorrect the data (`voicehub data check` lists every row), or raise "
            "max_drop_fraction."
        )
