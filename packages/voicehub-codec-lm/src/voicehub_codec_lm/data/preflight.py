"""What of a split can be trained on, found before any weight is there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from voicehub.adapters.experiment import SplitReport
from voicehub.errors import DataError
from voicehub_codec_lm.config import CodecLMDataConfig
from voicehub_codec_lm.text import Prompts
from voicehub_data.manifest import ManifestRow
from voicehub_data.splits import SplitRows
from voicehub_data.text.spoken import spoken_texts


@dataclass(frozen=True)
class PromptedSplit:
    """A split with its prompts.

    Attributes:
        name: of the split.
        rows, prompts: kept rows, their texts normalised, and their tokens, in one order.
        report: what was kept and dropped.
        digest: SHA-256 of the manifest's content.
    """

    name: str
    rows: list[ManifestRow]
    prompts: list[tuple[int, ...]]
    report: SplitReport
    digest: str


def prompt_split(split: SplitRows, prompts: Prompts, config: CodecLMDataConfig) -> PromptedSplit:
    """Encode the texts of a split; rows of which nothing can be said are dropped and counted.

    Raises:
        DataError: too many characters have no token, or too many rows are unusable.
        ConfigurationError: a speaker is not known.
    """
    texts = spoken_texts(split.rows, config.text_normalizer)
    rows: list[ManifestRow] = []
    tokens: list[tuple[int, ...]] = []
    unknown: Counter[str] = Counter()
    first = ""
    characters = 0
    for row, text in zip(split.rows, texts, strict=True):
        speaker = prompts.speaker(row.speaker if prompts.speakers else None, row.location)
        encoded = prompts.encode(text, speaker)
        unknown += encoded.unknown
        characters += len(text)
        try:
            prompts.require(text, speaker, row.location)
        except DataError as error:
            first = first or str(error)
            continue
        rows.append(replace(row, text=text))
        tokens.append(encoded.ids)
    _require_known(split.name, unknown, characters, config)
    dropped, notes = Counter(split.dropped), list(split.notes)
    if first:
        dropped["no-known-symbol"] += len(split.rows) - len(rows)
        notes.append(f"dropped: no-known-symbol: {first}")
    if not rows or sum(dropped.values()) > config.max_drop_fraction * split.total:
        raise DataError(
            f"split {split.name!r}: {split.total - len(rows)} of {split.total} rows cannot be used "
            f"({dict(dropped)}), more than data.max_drop_fraction {config.max_drop_fraction:g} "
            f"allows. {first}"
        )
    if unknown:
        shown = ", ".join(f"{symbol!r} {count}x" for symbol, count in unknown.most_common(8))
        notes.append(f"characters without a token are left out: {shown}")
    report = split.report(rows, dropped, notes)
    return PromptedSplit(split.name, rows, tokens, report, split.manifest.digest)


def _require_known(
    name: str, unknown: Counter[str], characters: int, config: CodecLMDataConfig
) -> None:
    share = sum(unknown.values()) / max(1, characters)
    if share > config.max_unknown_fraction:
        shown = ", ".join(f"{symbol!r} {count}x" for symbol, count in unknown.most_common(8))
        raise DataError(
            f"split {name!r}: {100 * share:.1f} % of the characters have no token ({shown}), more "
            f"than data.max_unknown_fraction {config.max_unknown_fraction:g} allows. Is the text "
            "in another script or language than the model's?"
        )
