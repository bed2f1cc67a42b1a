"""What a corpus consists of: durations, transcripts, speakers, containers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from voicehub_data.audio import AudioInfo
from voicehub_data.filters import count_characters
from voicehub_data.manifest.rows import ManifestRow

_PERCENTILES = (0, 5, 25, 50, 75, 95, 100)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles of one quantity; percentile 0 is the minimum and 100 the maximum."""

    count: int
    mean: float
    percentiles: dict[int, float]

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution | None:
        """None for no values."""
        if not values:
            return None
        array = np.asarray(values, dtype=np.float64)
        points = np.percentile(array, _PERCENTILES)
        return cls(
            len(array), float(array.mean()), dict(zip(_PERCENTILES, points.tolist(), strict=True))
        )


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Figures of a list of rows.

    Attributes:
        rows, seconds: how much there is; seconds of the rows whose duration is known.
        without_duration, without_text: rows that lack it.
        duration: seconds a row.
        characters_per_second: rate of speech, white space not counted.
        words, vocabulary: words in all transcripts, and different ones (split at white space).
        characters: character -> count over all transcripts, most frequent first.
        repeated_texts: rows whose text an earlier row has.
        speakers, languages: name -> seconds; rows without one are not in it.
        sample_rates, channels, formats: value -> files, where headers were read.
    """

    rows: int
    seconds: float
    without_duration: int
    without_text: int
    duration: Distribution | None
    characters_per_second: Distribution | None
    words: int
    vocabulary: int
    characters: dict[str, int]
    repeated_texts: int
    speakers: dict[str, float]
    languages: dict[str, float]
    sample_rates: dict[int, int]
    channels: dict[int, int]
    formats: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return asdict(self)


def describe_rows(rows: Sequence[ManifestRow], infos: Iterable[AudioInfo] = ()) -> CorpusStats:
    """Compute the figures of rows, and of file headers where those were read."""
    known = [row for row in rows if row.duration]
    texts = [row.text for row in rows if row.text.strip()]
    words = Counter(word for text in texts for word in text.split())
    characters = Counter(character for text in texts for character in text)
    rates = [
        count_characters(row.text) / row.duration
        for row in known
        if row.duration and row.text.strip()
    ]
    headers = list(infos)
    return CorpusStats(
        rows=len(rows),
        seconds=sum(row.duration or 0.0 for row in known),
        without_duration=len(rows) - len(known),
        without_text=len(rows) - len(texts),
        duration=Distribution.of([row.duration or 0.0 for row in known]),
        characters_per_second=Distribution.of(rates),
        words=words.total(),
        vocabulary=len(words),
        characters=dict(characters.most_common()),
        repeated_texts=len(texts) - len(set(texts)),
        speakers=_seconds_by(known, "speaker"),
        languages=_seconds_by(known, "language"),
        sample_rates=dict(Counter(info.sample_rate for info in headers).most_common()),
        channels=dict(Counter(info.channels for info in headers).most_common()),
        formats=dict(Counter(f"{i.format} {i.subtype}".strip() for i in headers).most_common()),
    )


def _seconds_by(rows: Sequence[ManifestRow], field: str) -> dict[str, float]:
    """Seconds by speaker or language, most first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        name = getattr(row, field)
        if name is not None:
            seconds[name] += row.duration or 0.0
    return dict(sorted(seconds.items(), key=lambda item: (-item[1], item[0])))
