"""Speakers of a split: who is trained on, and what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voicehub.adapters.experiment import SplitReport
from voicehub.errors import DataError
from voicehub.suggest import did_you_mean
from voicehub_data.manifest import ManifestRow
from voicehub_data.splits import SplitRows, dropped_notes
from voicehub_xvector.config import XVectorDataConfig


@dataclass(frozen=True)
class SpeakerSplit:
    """A split that is ready for a data set.

    Attributes:
        name: of the split.
        rows: kept rows; each has a speaker.
        report: what was kept and dropped.
        digest: SHA-256 of the manifest's content.
    """

    name: str
    rows: list[ManifestRow]
    report: SplitReport
    digest: str

    @property
    def speakers(self) -> list[str]:
        """Speaker of each row."""
        return [str(row.speaker) for row in self.rows]


def speaker_split(split: SplitRows, config: XVectorDataConfig) -> SpeakerSplit:
    """Leave out rows without a speaker, and, in training, speakers that are not to be learnt.

    Raises:
        DataError: fewer than two speakers are left to train on, ``train_speakers`` names one that
            is not there, or an evaluation split holds no two recordings of one speaker, or none of
            two speakers.
    """
    dropped: dict[str, list[ManifestRow]] = {}
    rows = _sort(split.rows, lambda row: bool(row.speaker), "no-speaker", dropped)
    if split.training:
        rows = _training_rows(split, rows, config, dropped)
    notes = [*split.notes, *dropped_notes(dropped)]
    counts = {**split.dropped, **{reason: len(lost) for reason, lost in dropped.items()}}
    speakers = Counter(str(row.speaker) for row in rows)
    _require_speakers(split, speakers, counts)
    fewest = min(speakers.items(), key=lambda item: item[1])
    notes.append(f"{len(speakers)} speakers; fewest recordings: {fewest[1]} ({fewest[0]})")
    report = split.report(rows, counts, notes)
    return SpeakerSplit(split.name, rows, report, split.manifest.digest)


def _training_rows(
    split: SplitRows,
    rows: Sequence[ManifestRow],
    config: XVectorDataConfig,
    dropped: dict[str, list[ManifestRow]],
) -> list[ManifestRow]:
    kept = list(rows)
    if config.train_speakers is not None:
        known = {str(row.speaker) for row in rows}
        strangers = sorted(set(config.train_speakers) - known)
        if strangers:
            raise DataError(
                f"split {split.name!r}: data.train_speakers names {strangers[0]!r}, who speaks in "
                f"no row.{did_you_mean(strangers[0], known)}"
            )
        wanted = set(config.train_speakers)
        kept = _sort(kept, lambda row: row.speaker in wanted, "other-speaker", dropped)
    counts = Counter(row.speaker for row in kept)
    least = config.min_utterances
    return _sort(kept, lambda row: counts[row.speaker] >= least, "rare-speaker", dropped)


def _sort(
    rows: Sequence[ManifestRow],
    keep: Callable[[ManifestRow], bool],
    reason: str,
    dropped: dict[str, list[ManifestRow]],
) -> list[ManifestRow]:
    kept = []
    for row in rows:
        if keep(row):
            kept.append(row)
        else:
            dropped.setdefault(reason, []).append(row)
    return kept


def _require_speakers(split: SplitRows, speakers: Counter[str], dropped: dict[str, int]) -> None:
    lost = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "none"
    if len(speakers) < 2:
        raise DataError(
            f"split {split.name!r} ({split.manifest.path}): {len(speakers)} speakers are left, "
            f"expected two or more; rows dropped: {lost}. Each row needs a 'speaker'."
        )
    if not split.training and max(speakers.values()) < 2:
        raise DataError(
            f"split {split.name!r} ({split.manifest.path}): no speaker has two recordings, so "
            "there is no pair of the same voice to verify."
        )
