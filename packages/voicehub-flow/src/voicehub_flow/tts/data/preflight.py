"""What of a split can be trained on, found before any weight is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from voicehub.adapters.experiment import SplitReport
from voicehub.errors import DataError
from voicehub_data.manifest import ManifestRow
from voicehub_data.splits import SplitRows
from voicehub_data.text.spoken import spoken_texts
from voicehub_flow.config import F5TTSDataConfig
from voicehub_flow.mel import MelSettings
from voicehub_flow.text import Encoded, Vocabulary
from voicehub_flow.tts.voices import Voices

_SHOWN = 8


@dataclass(frozen=True)
class PreparedSplit:
    """A split that is ready for a data set.

    Attributes:
        name: of the split.
        rows, ids, speakers: kept rows, their texts normalised, their tokens and speakers, in one
            order.
        report: what was kept and dropped.
        digest: SHA-256 of the manifest's content.
    """

    name: str
    rows: list[ManifestRow]
    ids: list[tuple[int, ...]]
    speakers: list[int]
    report: SplitReport
    digest: str


def prepare_split(
    split: SplitRows,
    vocabulary: Vocabulary,
    voices: Voices,
    mel: MelSettings,
    config: F5TTSDataConfig,
) -> PreparedSplit:
    """Encode the texts of a split; rows that cannot be trained on are dropped and counted.

    Raises:
        DataError: too many characters have no token, or too many rows are unusable.
        ConfigurationError: a speaker is not known.
    """
    texts = spoken_texts(split.rows, config.text_normalizer)
    encoded = [vocabulary.encode(text) for text in texts]
    unknown = _unknown(split.name, encoded, texts, config)
    kept: list[int] = []
    problems: dict[str, list[str]] = {}
    for position, row in enumerate(split.rows):
        problem = _problem(row, texts[position], encoded[position], mel)
        if problem is None:
            kept.append(position)
        else:
            problems.setdefault(problem[0], []).append(problem[1])
    dropped = Counter(split.dropped)
    dropped.update({reason: len(found) for reason, found in problems.items()})
    notes = list(split.notes)
    for reason, found in problems.items():
        more = f", and {len(found) - 1:,} more" if len(found) > 1 else ""
        notes.append(f"dropped: {reason}: {found[0]}{more}")
    if not kept or dropped.total() > config.max_drop_fraction * split.total:
        first = next((found[0] for found in problems.values()), "")
        raise DataError(
            f"split {split.name!r}: {split.total - len(kept)} of {split.total} rows cannot be used "
            f"({dict(dropped)}), more than data.max_drop_fraction {config.max_drop_fraction:g} "
            f"allows. {first}".rstrip()
        )
    if unknown:
        notes.append(f"characters without a token are left out: {_listed(unknown)}")
    rows = [replace(split.rows[place], text=texts[place]) for place in kept]
    speakers = [voices.row(row.speaker if len(voices) else None, row.location) for row in rows]
    report = split.report(rows, dropped, notes)
    ids = [encoded[place].ids for place in kept]
    return PreparedSplit(split.name, rows, ids, speakers, report, split.manifest.digest)


def _problem(
    row: ManifestRow, text: str, encoded: Encoded, mel: MelSettings
) -> tuple[str, str] | None:
    """Why a row is unusable: a reason to count, and a sentence."""
    if not encoded.ids:
        return "no-known-symbol", (
            f"{row.location}: no character of {text!r} has a token; is it in another script than "
            "the vocabulary?"
        )
    samples = int((row.duration or 0.0) * mel.sample_rate)
    frames = 1 + samples // mel.hop_length
    if samples <= mel.n_fft // 2:
        return "shorter-than-frame", (
            f"{row.location}: {row.duration or 0.0:.3f} s are less than half an FFT of {mel.n_fft} "
            f"samples at {mel.sample_rate} Hz"
        )
    if frames < len(encoded.ids):
        return "text-longer-than-audio", (
            f"{row.location}: {len(encoded.ids)} characters do not fit into {frames} frames; does "
            "the text belong to the audio?"
        )
    return None


def _unknown(
    name: str, encoded: Sequence[Encoded], texts: Sequence[str], config: F5TTSDataConfig
) -> Counter[str]:
    unknown: Counter[str] = Counter()
    for item in encoded:
        unknown.update(item.unknown)
    share = unknown.total() / max(1, sum(map(len, texts)))
    # A split of which nothing is known is told row by row, with a better message.
    if share > config.max_unknown_fraction and any(item.ids for item in encoded):
        raise DataError(
            f"split {name!r}: {100 * share:.1f} % of the characters have no token "
            f"({_listed(unknown)}), more than data.max_unknown_fraction "
            f"{config.max_unknown_fraction:g} allows. Is the text in another script or language "
            "than the vocabulary?"
        )
    return unknown


def _listed(unknown: Counter[str]) -> str:
    return ", ".join(f"{symbol!r} {count}x" for symbol, count in unknown.most_common(_SHOWN))
