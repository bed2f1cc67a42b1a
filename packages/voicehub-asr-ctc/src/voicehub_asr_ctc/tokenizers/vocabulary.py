"""The characters of a training text: which become tokens, and what is lost with the others."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from voicehub.errors import DataError

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class VocabularyReport:
    """What a vocabulary was built from.

    Attributes:
        texts: number of transcripts.
        characters: kept characters and their counts, without white space, most frequent first.
        dropped: characters seen fewer times than asked for, and their counts.
        affected: transcripts that hold a dropped character.
    """

    texts: int
    characters: dict[str, int]
    dropped: dict[str, int]
    affected: int

    def describe(self) -> str:
        """``28 characters kept; 2 dropped (q 1, z 1) in 2 transcripts``."""
        text = f"{len(self.characters)} characters kept"
        if self.dropped:
            text += (
                f"; {len(self.dropped)} dropped as too rare ({show_counts(self.dropped)}) "
                f"in {self.affected} transcripts"
            )
        return text


def survey(texts: Sequence[str], *, min_count: int = 1) -> VocabularyReport:
    """Count the characters of transcripts and part the frequent from the rare.

    Raises:
        DataError: no character is left.
    """
    counts = Counter(c for text in texts for c in text if not c.isspace())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kept = {c: n for c, n in ordered if n >= min_count}
    dropped = {c: n for c, n in ordered if n < min_count}
    if not kept:
        raise DataError(
            f"no vocabulary can be built: the {len(texts)} training transcripts hold no character "
            f"at least {min_count} times after normalisation. Look at text_normalizer and at the "
            "manifest's text column."
        )
    affected = sum(any(c in dropped for c in text) for text in texts)
    return VocabularyReport(len(texts), kept, dropped, affected)


def without(texts: Iterable[str], dropped: Iterable[str]) -> list[str]:
    """Transcripts without some characters, white space made single again."""
    table = {ord(c): None for c in dropped}
    return [" ".join(text.translate(table).split()) for text in texts]


def show_counts(counts: dict[str, int]) -> str:
    """``'q' 3, 'é' 1``; long lists are cut."""
    shown = ", ".join(f"{c!r} {n}" for c, n in list(counts.items())[:_SHOWN])
    more = len(counts) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def script_of(character: str) -> str | None:
    """Script of a letter by its Unicode name (``LATIN``, ``CYRILLIC``); None for what has none."""
    if not character.isalpha():
        return None
    return unicodedata.name(character, "").split(" ", 1)[0] or None
