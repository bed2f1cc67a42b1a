"""What guessing gives: the figure that a recogniser has to beat before it has heard anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from voicehub.errors import DataError

_SEARCHED_SENTENCES = 200


@dataclass(frozen=True)
class Baseline:
    """A constant answer and its word error rate.

    Attributes:
        answer: the words given for every recording.
        word_error_rate: over the evaluation texts, as a fraction; 1.0 is as bad as silence.
    """

    answer: str
    word_error_rate: float


@dataclass(frozen=True)
class GuessBaselines:
    """The two guesses worth printing beside a result."""

    most_frequent_sentence: Baseline
    best_constant_words: Baseline


def guess_baselines(train_texts: Sequence[str], evaluation_texts: Sequence[str]) -> GuessBaselines:
    """Word error rates of answering the same words to everything.

    Both answers are chosen on the training texts alone: the sentence that occurs most often
    (ties go to the first in the alphabet), and the word sequence that greedy search, one word
    appended at a time, finds to have the lowest word error rate there.

    Raises:
        DataError: one of the lists is empty.
    """
    if not train_texts or not evaluation_texts:
        raise DataError("The baseline needs at least one training text and one evaluation text.")
    counts = Counter(train_texts)
    frequent = min(counts, key=lambda text: (-counts[text], text))
    constant = _best_constant_words(train_texts)
    return GuessBaselines(
        Baseline(frequent, _constant_error_rate(frequent, evaluation_texts)),
        Baseline(constant, _constant_error_rate(constant, evaluation_texts)),
    )


def _constant_error_rate(answer: str, texts: Sequence[str]) -> float:
    from jiwer import wer

    return float(wer(list(texts), [answer] * len(texts)))


def _best_constant_words(texts: Sequence[str]) -> str:
    """Greedy search on an even sample of the texts."""
    stride = max(1, len(texts) // _SEARCHED_SENTENCES)
    sample = sorted(texts)[::stride]
    words = sorted({word for text in sample for word in text.split()})
    answer, best = "", 1.0
    while True:
        longer = {
            extended: _constant_error_rate(extended, sample)
            for word in words
            for extended in (f"{answer} {word}".strip(),)
        }
        candidate = min(longer, key=lambda text: (longer[text], text))
        if longer[candidate] >= best:
            return answer
        answer, best = candidate, longer[candidate]
