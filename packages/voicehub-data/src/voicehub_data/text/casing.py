"""How well a truecaser restores capitals, beside the simplest rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from voicehub.errors import DataError
from voicehub_data.text.truecaser import WORD, Truecaser


@dataclass(frozen=True, slots=True)
class CasingScore:
    """Words whose case was restored.

    Attributes:
        words: in all.
        right: spelled as they were.
        capitals: words with a capital.
        found: of them, spelled as they were.
        claimed: words that were given a capital.
    """

    words: int
    right: int
    capitals: int
    found: int
    claimed: int

    @property
    def accuracy(self) -> float:
        """Share of words that are right; most words have no capital in any case."""
        return self.right / self.words

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall over words with a capital."""
        claimed_and_due = self.claimed + self.capitals
        return 2 * self.found / claimed_and_due if claimed_and_due else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"words": self.words, "accuracy": self.accuracy, "f1": self.f1}

    def describe(self) -> str:
        """``98.1 % of words, F1 of capitals 91.0 %``."""
        return f"{100 * self.accuracy:.1f} % of words, F1 of capitals {100 * self.f1:.1f} %"


def measure_casing(texts: Iterable[str], truecaser: Truecaser) -> tuple[CasingScore, CasingScore]:
    """Take the case away and restore it; also by capitalising the first words of sentences alone.

    Raises:
        DataError: the texts hold no word.
    """
    cased = list(texts)
    first_words = Truecaser({})
    return _score(cased, truecaser), _score(cased, first_words)


def _score(texts: Iterable[str], restore: Callable[[str], str]) -> CasingScore:
    words = right = capitals = found = claimed = 0
    for text in texts:
        text = text.replace("\u2019", "'")
        for want, got in zip(_words(text), _words(restore(text.lower())), strict=True):
            words += 1
            right += want == got
            capitals += want.lower() != want
            claimed += got.lower() != got
            found += want == got and want.lower() != want
    if not words:
        raise DataError("there is no word to restore the case of.")
    return CasingScore(words, right, capitals, found, claimed)


def _words(text: str) -> list[str]:
    return WORD.findall(text)
