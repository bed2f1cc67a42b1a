"""Error rates against a plain edit distance, and alignments."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.metrics import WerCounts, align_words, character_error_rate, word_error_rate

words = st.lists(st.sampled_from("abcd"), max_size=7).map(" ".join)
pairs = st.lists(st.tuples(words, words), min_size=1, max_size=6)


def edit_distance(ref, hyp) -> int:
    row = list(range(len(hyp) + 1))
    for i, a in enumerate(ref, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(hyp, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


@given(pairs)
def test_words_equal_the_edit_distance(rows):
    refs, hyps = [r for r, _ in rows], [h for _, h in rows]
    counts = word_error_rate(refs, hyps, normalizer="none")
    assert counts.errors == sum(edit_distance(r.split(), h.split()) for r, h in rows)
    assert counts.words == sum(len(r.split()) for r in refs)


@given(pairs)
def test_characters_equal_the_edit_distance(rows):
    refs, hyps = [r for r, _ in rows], [h for _, h in rows]
    counts = character_error_rate(refs, hyps, normalizer="none")
    assert counts.errors == sum(edit_distance(r, h) for r, h in rows)
    assert counts.words == sum(len(r) for r in refs)
    assert counts.unit == "character"


@given(words, words)
def test_alignment_is_minimal_and_complete(ref, hyp):
    aligned = align_words(ref, hyp)
    assert [a for _, a, _ in aligned if a] == ref.split()
    assert [b for _, _, b in aligned if b] == hyp.split()
    assert sum(op != "equal" for op, _, _ in aligned) == edit_distance(ref.split(), hyp.split())
    for op, a, b in aligned:
        shape = {"equal": a == b != "", "substitute": "" not in (a, b) and a != b}
        shape |= {"delete": a != "" == b, "insert": a == "" != b}
        assert shape[op]


def test_alignment_example():
    assert align_words("the cat sat", "the bat sat down") == [
        ("equal", "the", "the"),
        ("substitute", "cat", "bat"),
        ("equal", "sat", "sat"),
        ("insert", "", "down"),
    ]
    assert align_words("Colour!", "color", normalizer="english") == [("equal", "color", "color")]
    assert align_words("", "") == []


def test_corpus_rate_weighs_by_words():
    counts = word_error_rate(["a", "b c d e"], ["x", "b c d e"])
    assert (counts.errors, counts.words, counts.rate) == (1, 5, 0.2)
    assert counts.normalizer == "basic"


def test_normaliser_counts():
    refs, hyps = ["Twenty-five colours."], ["25 colors"]
    assert word_error_rate(refs, hyps, normalizer="english").errors == 0
    assert word_error_rate(refs, hyps, normalizer="basic").errors == 3
    assert word_error_rate(refs, hyps, normalizer="none").errors == 2
    with pytest.raises(ConfigurationError, match="unknown text normaliser"):
        word_error_rate(refs, hyps, normalizer="englich-uk")


def test_empty_references():
    counts = word_error_rate(["", "a b"], ["x y", "a b"])
    assert (counts.insertions, counts.words, counts.rate) == (2, 2, 1.0)
    assert character_error_rate([""], ["xyz"]).insertions == 3
    nothing = word_error_rate(["..."], ["x"])
    assert nothing.errors == 1
    assert math.isnan(nothing.rate)


def test_counts_add_up_only_when_alike():
    one, two = word_error_rate(["a b"], ["a"]), word_error_rate(["c"], ["d"])
    assert one + two == word_error_rate(["a b", "c"], ["a", "d"])
    assert sum([one, two], WerCounts(normalizer="basic")).errors == 2
    with pytest.raises(DataError, match="cannot be added"):
        _ = one + character_error_rate(["a"], ["a"])
    with pytest.raises(DataError, match="cannot be added"):
        _ = one + word_error_rate(["a"], ["a"], normalizer="none")


@pytest.mark.parametrize(
    ("refs", "hyps", "message"),
    [
        (["a"], [], "1 references and 0 hypotheses"),
        ([], [], "at least one row"),
        ("abc", "abd", "give lists"),
    ],
)
def test_refusals(refs, hyps, message):
    for measure in (word_error_rate, character_error_rate):
        with pytest.raises(DataError, match=message):
            measure(refs, hyps)
