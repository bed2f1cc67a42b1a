from __future__ import annotations

import pytest

from voicehub.errors import DataError
from voicehub_data.synthetic.baseline import guess_baselines


def test_the_most_frequent_sentence_is_answered() -> None:
    train = ["open the door"] * 3 + ["close the gate"] * 2 + ["one two three"]
    guesses = guess_baselines(train, ["open the door", "open the gate"])
    assert guesses.most_frequent_sentence.answer == "open the door"
    assert guesses.most_frequent_sentence.word_error_rate == pytest.approx(1 / 6)


def test_constant_words_beat_or_equal_silence() -> None:
    train = ["the red cup", "a blue the", "the green gate"]
    guesses = guess_baselines(train, ["the yellow"])
    assert guesses.best_constant_words.answer == "the"
    assert guesses.best_constant_words.word_error_rate == pytest.approx(0.5)


def test_where_no_word_helps_silence_is_the_answer() -> None:
    guesses = guess_baselines(["a", "b", "c", "d"], ["a b"])
    assert guesses.best_constant_words.word_error_rate <= 1.0


def test_empty_lists_are_refused() -> None:
    with pytest.raises(DataError, match="at least one"):
        guess_baselines([], ["a"])
