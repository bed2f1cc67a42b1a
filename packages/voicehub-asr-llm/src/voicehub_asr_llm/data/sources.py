"""Read the sources of a run: what is kept of each, why the rest is not, and what its labels are."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

from voicehub.adapters.experiment import SplitReport
from voicehub.errors import ConfigurationError, DataError
from voicehub_asr_llm.config.sources import SourcesConfig, SpeechSourceConfig
from voicehub_data.config import DataSourceConfig, FilterConfig
from voicehub_data.filters import DurationFilter, filter_rows
from voicehub_data.manifest import ManifestRow
from voicehub_data.manifest.join import join_manifests
from voicehub_data.splits import SplitRows, dropped_notes, read_split
from voicehub_data.text.labels import has_punctuation, is_partly_transcribed, normalize_label
from voicehub_data.text.truecaser import Truecaser, is_mono_case

#: A source whose transcripts hold punctuation in at least so many cases is a punctuated one.
_PUNCTUATED_SHARE = 0.1
#: A source is noted to look mono-case when at least so many transcripts do.
_MONO_SHARE = 0.9

TextFunction = Callable[[str], str]


@dataclass(frozen=True)
class TrainSource:
    """One training source, read and filtered.

    Attributes:
        name: of its manifest; unique in a run.
        config: what was declared.
        rows: kept rows; ``text`` is the label.
        punctuated: whether its labels hold punctuation.
        report: what was kept and dropped.
    """

    name: str
    config: SpeechSourceConfig
    rows: Sequence[ManifestRow]
    punctuated: bool
    report: SplitReport

    @property
    def draws(self) -> int:
        """How many samples an epoch takes of it."""
        return (self.config.target_samples or len(self.rows)) * self.config.epoch_expansion


@dataclass(frozen=True)
class TrainingData:
    """All training sources of a run.

    Attributes:
        sources: in their order.
        rows: the rows of all, one source behind the other, with unique ids; ``text`` is the label.
        ids: of the rows, as their manifests have them.
        row_punctuated: whether each row's source holds punctuation: which prompt it gets.
        digest: SHA-256 (hex) of the manifests' contents.
    """

    sources: Sequence[TrainSource]
    rows: list[ManifestRow]
    ids: frozenset[str]
    row_punctuated: list[bool]
    digest: str

    @property
    def members(self) -> list[range]:
        """Positions of the rows of every source."""
        starts = [0]
        for source in self.sources:
            starts.append(starts[-1] + len(source.rows))
        return [range(a, b) for a, b in pairwise(starts)]

    @property
    def punctuated(self) -> bool:
        """Whether any source holds punctuation: then so does what the model is asked to write."""
        return any(source.punctuated for source in self.sources)

    @property
    def reports(self) -> list[SplitReport]:
        """What was kept and dropped, by source."""
        return [source.report for source in self.sources]


@dataclass(frozen=True)
class EvalData:
    """One evaluation split; only what cannot be read at all is left out.

    Attributes:
        name: of the split.
        rows: with their transcripts as they are: the references.
        labels: what the evaluation loss is computed on.
        report: what could be read.
        digest: SHA-256 (hex) of the manifest's content.
    """

    name: str
    rows: list[ManifestRow]
    labels: list[str]
    report: SplitReport
    digest: str = ""


def read_training_data(config: SourcesConfig, *, sample_rate: int) -> TrainingData:
    """Read, filter and label all training sources.

    Raises:
        DataError: a source cannot be read, or more than ``max_drop_fraction`` of it would go.
        ConfigurationError: a declaration contradicts the data.
    """
    truecase = None if config.truecaser is None else Truecaser.load(config.truecaser)
    names = _names(config.train)
    read = [
        _read_source(name, source, config, truecase, sample_rate)
        for name, source in zip(names, config.train, strict=True)
    ]
    sources = [source for source, _ in read]
    manifests = [split.manifest.with_rows(source.rows) for source, split in read]
    joined = join_manifests([replace(manifest, problems=(), notes=()) for manifest in manifests])
    marked = [source.punctuated for source in sources for _ in source.rows]
    _note_mix(sources)
    digest = hashlib.sha256("\n".join(split.manifest.digest for _, split in read).encode())
    ids = frozenset(row.id for source in sources for row in source.rows)
    return TrainingData(sources, list(joined.rows), ids, marked, digest.hexdigest())


def read_eval_data(config: SourcesConfig, *, sample_rate: int) -> list[EvalData]:
    """Read the evaluation splits; rows whose audio cannot be read are counted, others all kept."""
    return [_read_eval(name, source, config, sample_rate) for name, source in config.eval.items()]


def _read_eval(
    name: str, source: DataSourceConfig, config: SourcesConfig, sample_rate: int
) -> EvalData:
    settings = _settings(config, limit=config.max_drop_fraction)
    split = read_split(name, [source], settings, training=False, sample_rate=sample_rate)
    report = split.report(split.rows, split.dropped, split.notes)
    labels = [normalize_label(row.text) for row in split.rows]
    return EvalData(name, split.rows, labels, report, split.manifest.digest)


def refuse_overlap(training: TrainingData, splits: Sequence[EvalData]) -> None:
    """Refuse evaluation rows that are trained on, by id and by place in an audio file.

    Raises:
        DataError: some are; the message names them.
    """
    places = {_place(row) for row in training.rows}
    for split in splits:
        same = [row for row in split.rows if row.id in training.ids or _place(row) in places]
        if same:
            shown = ", ".join(repr(row.id) for row in same[:5]) + (", ..." if same[5:] else "")
            raise DataError(
                f"evaluation split {split.name!r}: {len(same)} of {len(split.rows)} rows have the "
                f"id or the audio of training rows ({shown}). A figure on what was trained on is "
                "none. Remove them from one of the two; where corpora only number their recordings "
                "alike, set data.overlapping_ids=allow."
            )


def _place(row: ManifestRow) -> tuple[str, float]:
    # Manifests in other folders may name a file by "../".
    return os.path.normpath(row.audio_filepath), row.offset


# -- one source ------------------------------------------------------------------------------


def _read_source(
    name: str,
    source: SpeechSourceConfig,
    config: SourcesConfig,
    truecase: TextFunction | None,
    sample_rate: int,
) -> tuple[TrainSource, SplitRows]:
    # Limits apply to everything that is dropped together, at the end.
    split = read_split(
        name,
        [source],
        _settings(config, limit=1.0),
        training=True,
        sample_rate=sample_rate,
        exclude=source.exclude_where,
    )
    notes = [f"excluded: {count:,} rows, {why}" for why, count in _exclusions(split).items()]
    notes += split.notes
    label = _Labels(truecase if source.text_case == "mono" else None)
    rules = (_PartlyTranscribed(), DurationFilter(config.min_seconds, config.max_seconds), label)
    filtered = filter_rows(split.rows, *rules)
    dropped = split.dropped + Counter(filtered.counts)
    notes += dropped_notes(filtered.dropped)
    _require_enough(name, split, dropped, len(filtered.kept), config)
    rows = [replace(row, text=label.of(row)) for row in filtered.kept]
    punctuated, said = _punctuation(name, source, rows)
    notes += [*_case_notes(source, filtered.kept), said]
    split.manifest = split.manifest.with_rows(filtered.kept)
    report = split.report(rows, {**split.excluded, **dropped}, notes)
    return TrainSource(name, source, rows, punctuated, report), split


def _exclusions(split: SplitRows) -> dict[str, int]:
    return {why.removeprefix("excluded: "): count for why, count in split.excluded.items()}


@dataclass(frozen=True)
class _PartlyTranscribed:
    """Words at an edge of the audio have no label."""

    def reason(self, row: ManifestRow) -> str | None:
        return "partly-transcribed" if is_partly_transcribed(row.text) else None


@dataclass(frozen=True)
class _Labels:
    """The label of a row; a rule, too: one without a word is dropped."""

    truecase: TextFunction | None
    _known: dict[str, str] = field(default_factory=dict)

    def of(self, row: ManifestRow) -> str:
        label = self._known.get(row.text)
        if label is None:
            label = normalize_label(row.text)
            label = label if self.truecase is None else self.truecase(label)
            self._known[row.text] = label
        return label

    def reason(self, row: ManifestRow) -> str | None:
        if not row.text.strip():
            return "empty-text"
        has_word = any(character.isalnum() for character in self.of(row))
        return None if has_word else "empty-label"


def _settings(config: SourcesConfig, *, limit: float) -> SimpleNamespace:
    """What ``read_split`` reads; it filters nothing itself."""
    nothing = FilterConfig(min_duration=None, drop_empty_text=False, max_drop_fraction=1.0)
    return SimpleNamespace(
        check=config.check, workers=config.workers, max_drop_fraction=limit, filters=nothing
    )


def _require_enough(
    name: str, split: SplitRows, dropped: Counter[str], kept: int, config: SourcesConfig
) -> None:
    lost = dropped.total()
    if kept and lost <= config.max_drop_fraction * split.wanted:
        return
    lines = [f"  {count:>8,}  {reason}" for reason, count in dropped.most_common()]
    advice = "Correct the data (`voicehub data check` lists every row), or raise max_drop_fraction."
    if dropped["too_short"] + dropped["too_long"] > lost / 2:
        advice = (
            f"Clips of {config.min_seconds:g} to {config.max_seconds:g} s are kept: set "
            "data.min_seconds and data.max_seconds for this corpus, or raise max_drop_fraction."
        )
    raise DataError(
        f"training source {name!r} ({split.manifest.path}): {lost:,} of {split.wanted:,} rows "
        f"would be dropped, over data.max_drop_fraction {config.max_drop_fraction:g}:\n"
        + "\n".join(lines)
        + f"\n{advice}"
    )


def _punctuation(
    name: str, source: SpeechSourceConfig, rows: Sequence[ManifestRow]
) -> tuple[bool, str]:
    """Whether the labels hold punctuation, and what to say of it."""
    count = sum(has_punctuation(row.text) for row in rows)
    share = count / len(rows)
    found = f"{100 * share:.0f} % of the labels hold punctuation"
    if source.text_punct is None:
        punctuated = share >= _PUNCTUATED_SHARE
        prompt = "punctuated" if punctuated else "plain"
        return punctuated, f"prompt: {prompt}, since {found}; declare text_punct to decide"
    if source.text_punct and not count:
        raise ConfigurationError(
            f"training source {name!r}: text_punct is true, and none of its {len(rows):,} labels "
            "holds punctuation. The model would be asked for marks and taught to leave them out; "
            "set text_punct: false. Punctuation is never added."
        )
    prompt = "punctuated" if source.text_punct else "plain"
    return source.text_punct, f"prompt: {prompt}, as declared; {found}"


def _case_notes(source: SpeechSourceConfig, rows: Sequence[ManifestRow]) -> list[str]:
    if source.text_case == "mono":
        return [f"truecased: {len(rows):,} labels (text_case: mono)"]
    judged = [row for row in rows if sum(map(str.isalpha, row.text)) >= 5]
    mono = sum(is_mono_case(row.text) for row in judged)
    if source.text_case is None and judged and mono >= _MONO_SHARE * len(judged):
        return [
            f"mono-case: {mono:,} of {len(judged):,} transcripts have letters of one case; they "
            "are left so. Declare text_case: mono to truecase them, or cased to keep them"
        ]
    return []


def _names(sources: Sequence[DataSourceConfig]) -> list[str]:
    """``train`` for one source, else the names of the manifests, numbered where they are equal."""
    if len(sources) == 1:
        return ["train"]
    stems = [Path(source.path).stem or source.path for source in sources]
    return [
        f"train/{stem}" if stems.count(stem) == 1 else f"train/{stem}.{position}"
        for position, stem in enumerate(stems)
    ]


def _note_mix(sources: Sequence[TrainSource]) -> None:
    """Say what an epoch takes of every source, where that is not each row once."""
    total = sum(source.draws for source in sources)
    for source in sources:
        rows, draws = len(source.rows), source.draws
        share = f"{100 * source.draws / total:.1f} % of an epoch"
        if draws == rows:
            if len(sources) > 1:
                source.report.notes.append(f"mix: {draws:,} draws, {share}; each row once")
            continue
        how = "others every epoch" if draws < rows else f"each row {draws / rows:.1f} times"
        source.report.notes.append(f"mix: {draws:,} draws of {rows:,} rows, {share}; {how}")
