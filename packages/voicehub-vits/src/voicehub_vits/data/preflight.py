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
from voicehub_vits.config import VitsDataConfig
from voicehub_vits.data.dataset import Labels
from voicehub_vits.data.preparation import AudioPreparation
from voicehub_vits.data.voices import Voices
from voicehub_vits.text.front_end import Encoded, TextFrontEnd

#: Up to so many seconds of audio are prepared beforehand, so that lengths are exact.
_PREPARED_SECONDS = 7200.0


@dataclass(frozen=True)
class PreparedSplit:
    """A split that is ready for a data set.

    Attributes:
        name: of the split.
        rows, labels: kept rows and what they say, in one order.
        report: what was kept and dropped.
        digest: SHA-256 of the manifest's content.
    """

    name: str
    rows: list[ManifestRow]
    labels: list[Labels]
    report: SplitReport
    digest: str


def prepare_split(
    split: SplitRows,
    front_end: TextFrontEnd,
    preparation: AudioPreparation,
    voices: Voices,
    config: VitsDataConfig,
) -> PreparedSplit:
    """Encode the texts of a split and sort out what cannot be trained on.

    Raises:
        DataError: too many symbols have no token, a row is unusable and ``unusable`` is
            ``error``, or too many are.
        ConfigurationError: a speaker or language is not in the model's tables.
    """
    texts = spoken_texts(split.rows, config.text_normalizer)
    encoded = [front_end.encode(text) for text in texts]
    notes = [*split.notes, *_unknown_notes(split, encoded, texts, config)]
    kept: list[int] = []
    dropped: dict[str, list[tuple[int, str]]] = {}
    frames = _frames(split, preparation)
    for position, row in enumerate(split.rows):
        problem = _problem(row, texts[position], encoded[position], frames[position], preparation)
        if problem is None:
            kept.append(position)
        else:
            dropped.setdefault(problem[0], []).append((position, problem[1]))
    _refuse(split, dropped, config)
    for reason, found in dropped.items():
        more = f", and {len(found) - 1:,} more" if len(found) > 1 else ""
        notes.append(f"dropped: {reason}: {found[0][1]}{more}")
    counts = Counter(split.dropped)
    counts.update({reason: len(found) for reason, found in dropped.items()})
    rows = [replace(split.rows[i], text=texts[i]) for i in kept]
    labels = [
        Labels(
            encoded[i].ids,
            voices.speaker(_asked(split.rows[i].speaker, voices.speakers), split.rows[i].location),
            voices.language(split.rows[i].language, split.rows[i].location),
        )
        for i in kept
    ]
    report = split.report(rows, counts, notes)
    return PreparedSplit(split.name, rows, labels, report, split.manifest.digest)


def _asked(name: str | None, speakers: Sequence[str]) -> str | None:
    """A model of one voice does not ask who speaks."""
    return name if speakers else None


def _frames(split: SplitRows, preparation: AudioPreparation) -> list[int]:
    """Frames of every row: of the prepared clip, or in a large corpus by its duration."""
    acoustic = preparation.acoustic
    seconds = sum(row.duration or 0.0 for row in split.rows)
    if seconds <= _PREPARED_SECONDS or preparation.cache.directory is not None:
        return [_prepared_frames(row, preparation) for row in split.rows]
    rate, hop = acoustic.sampling_rate, acoustic.hop_length
    return [int((row.duration or 0.0) * rate) // hop for row in split.rows]


def _prepared_frames(row: ManifestRow, preparation: AudioPreparation) -> int:
    try:
        return preparation(row).frames
    except DataError as error:
        if "remain of the clip" not in str(error):
            raise
        return 0


def _problem(
    row: ManifestRow, text: str, encoded: Encoded, frames: int, preparation: AudioPreparation
) -> tuple[str, str] | None:
    """Why a row is unusable: a reason to count, and a sentence."""
    acoustic = preparation.acoustic
    if encoded.symbols == 0:
        return "no-known-symbol", (
            f"{row.location}: no symbol of {text!r} has a token; is it in another script than "
            "the vocabulary?"
        )
    if frames < acoustic.segment_frames:
        hop, rate = acoustic.hop_length, acoustic.sampling_rate
        return "shorter-than-segment", (
            f"{row.location}: {frames * hop / rate:.2f} s without its silence, shorter than one "
            f"segment of {acoustic.segment_size} samples ({acoustic.segment_size / rate:.2f} s)"
        )
    if frames < len(encoded.ids):
        return "text-longer-than-audio", (
            f"{row.location}: {len(encoded.ids)} tokens do not fit into {frames} frames; does the "
            "text belong to the audio?"
        )
    return None


def _refuse(
    split: SplitRows, dropped: dict[str, list[tuple[int, str]]], config: VitsDataConfig
) -> None:
    count = sum(len(found) for found in dropped.values())
    if not count:
        return
    first = next(iter(dropped.values()))[0][1]
    reasons = ", ".join(f"{len(found)} {reason}" for reason, found in dropped.items())
    if config.unusable == "error":
        raise DataError(
            f"split {split.name!r}: {count} of {split.total} rows cannot be trained on "
            f"({reasons}). The first: {first}. Correct them, or leave such rows out with "
            "data.unusable=drop."
        )
    lost = count + split.dropped.total()
    if lost > config.max_drop_fraction * split.total:
        raise DataError(
            f"split {split.name!r}: {lost} of {split.total} rows are unusable ({reasons}), over "
            f"data.max_drop_fraction {config.max_drop_fraction:g}. The first: {first}."
        )


def _unknown_notes(
    split: SplitRows, encoded: Sequence[Encoded], texts: Sequence[str], config: VitsDataConfig
) -> list[str]:
    unknown: Counter[str] = Counter()
    for item in encoded:
        unknown.update(item.unknown)
    if not unknown:
        return []
    total = sum(item.symbols for item in encoded) + unknown.total()
    share = unknown.total() / total
    shown = ", ".join(f"{symbol!r} {count}" for symbol, count in unknown.most_common(6))
    text = f"unknown-symbols: {unknown.total()} of {total} symbols ({share:.1%}) have no token"
    # A split of which nothing is known is told row by row, with a better message.
    if share > config.max_unknown_fraction and any(item.symbols for item in encoded):
        raise DataError(
            f"split {split.name!r}: {text}: {shown}; over data.max_unknown_fraction "
            f"{config.max_unknown_fraction:g}. They would be left unsaid: set data.text_normalizer "
            "(numbers, abbreviations), or build a vocabulary from your text "
            "(model.text.kind=characters)."
        )
    return [f"{text}: {shown}; they are left out"]
