"""Word errors of pairs that were counted by hand, with the normaliser that figures name."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicehub_asr_llm.evaluating import Failed, Hypothesis, Outcome, score
from voicehub_data.manifest import ManifestRow
from voicehub_data.metrics import word_error_rate
from voicehub_data.text import get_normalizer

NORMALIZER = "whisper-english-variants"

#: reference, hypothesis, substitutions, deletions, insertions, words of the reference.
GOLDEN = [
    # The same words.
    ("hello world", "hello world", 0, 0, 0, 2),
    ("Hello, World!", "hello world", 0, 0, 0, 2),
    ("It's late.", "it is late", 0, 0, 0, 3),
    ("I won't go", "I will not go", 0, 0, 0, 4),
    ("they're here", "they are here", 0, 0, 0, 3),
    ("I'm gonna go", "I am going to go", 0, 0, 0, 5),
    ("we wanna see", "we want to see", 0, 0, 0, 4),
    ("Mr. Brown", "mister Brown", 0, 0, 0, 2),
    ("Dr. Green", "doctor green", 0, 0, 0, 2),
    ("the colour grey", "the color gray", 0, 0, 0, 3),
    ("organise the theatre", "organize the theater", 0, 0, 0, 3),
    ("twenty-five cats", "25 cats", 0, 0, 0, 2),
    ("two thousand and five", "2005", 0, 0, 0, 1),
    ("fifty percent", "50%", 0, 0, 0, 1),
    ("twenty dollars", "$20", 0, 0, 0, 1),
    ("uh hello um world", "hello world", 0, 0, 0, 2),
    ("[noise] hello (laughs)", "hello", 0, 0, 0, 1),
    ("café naïve", "cafe naive", 0, 0, 0, 2),
    ("10,000 people", "10000 people", 0, 0, 0, 2),
    ("can't stop", "cannot stop", 1, 1, 0, 3),
    # Spellings that the three rules make one.
    ("okay then", "ok then", 0, 0, 0, 2),
    ("OK, okay", "Okay ok", 0, 0, 0, 2),
    ("all right then", "alright then", 0, 0, 0, 2),
    ("alright, all right", "all right alright", 0, 0, 0, 2),
    ("kinda slow", "kind of slow", 0, 0, 0, 3),
    ("that's kinda okay", "that is kind of ok", 0, 0, 0, 5),
    ("all the right words", "alright words", 1, 2, 0, 4),
    # Substitutions.
    ("the cat sat", "the hat sat", 1, 0, 0, 3),
    ("a b c d", "a x y d", 2, 0, 0, 4),
    ("okay then", "oak then", 1, 0, 0, 2),
    ("one word", "other things", 2, 0, 0, 2),
    # Deletions.
    ("the cat sat", "the sat", 0, 1, 0, 3),
    ("the cat sat down", "sat", 0, 3, 0, 4),
    ("the cat sat", "", 0, 3, 0, 3),
    ("all right", "", 0, 1, 0, 1),
    # Insertions.
    ("the cat", "the big cat", 0, 0, 1, 2),
    ("stop", "stop stop stop", 0, 0, 2, 1),
    ("", "hello there", 0, 0, 2, 0),
    ("um", "yes", 0, 0, 1, 0),
    ("kind", "kinda", 0, 0, 1, 1),
    # Several at once; the fewest edits count.
    ("the quick brown fox", "quick brown box jumps", 1, 1, 1, 4),
    ("red blue green black white", "blue green white", 0, 2, 0, 5),
    ("a b c", "b c d", 0, 1, 1, 3),
    ("we'll see you at 5:30", "we will see you at 5 30", 0, 0, 0, 7),
    ("I've been there", "I had been their", 2, 0, 0, 4),
]


def test_there_are_enough_pairs():
    assert len(GOLDEN) >= 40


@pytest.mark.parametrize(("reference", "hypothesis", "s", "d", "i", "words"), GOLDEN)
def test_golden(reference, hypothesis, s, d, i, words):
    counts = word_error_rate([reference], [hypothesis], normalizer=NORMALIZER)
    assert (counts.substitutions, counts.deletions, counts.insertions) == (s, d, i)
    assert counts.words == words


def test_corpus_rate_is_all_edits_over_all_words():
    counts = word_error_rate(
        [pair[0] for pair in GOLDEN], [pair[1] for pair in GOLDEN], normalizer=NORMALIZER
    )
    edits = sum(sum(pair[2:5]) for pair in GOLDEN)
    words = sum(pair[5] for pair in GOLDEN)
    assert (counts.errors, counts.words) == (edits, words)
    outcomes = [Outcome(row(str(n), pair[0]), Hypothesis(pair[1])) for n, pair in enumerate(GOLDEN)]
    assert score(outcomes, NORMALIZER).metrics["wer"] == edits / words
    means = [sum(pair[2:5]) / pair[5] for pair in GOLDEN if pair[5]]
    assert edits / words != pytest.approx(sum(means) / len(means))


def test_the_normaliser_is_named_and_idempotent():
    normalize = get_normalizer(NORMALIZER)
    assert normalize.name == NORMALIZER
    for pair in GOLDEN:
        assert normalize(normalize(pair[0])) == normalize(pair[0])


# -- scores ------------------------------------------------------------------------------


def row(name, text, source="test.jsonl", **extra):
    return ManifestRow(name, Path(f"{name}.wav"), text, 1.0, source=Path(source), extra=extra)


def test_failures_are_no_empty_hypotheses():
    outcomes = [
        Outcome(row("a", "one two three four"), Hypothesis("one two three four")),
        Outcome(row("b", "five six"), Failed("unreadable-audio")),
        Outcome(row("c", "stop now"), Hypothesis("stop")),
        Outcome(row("d", "nothing here"), Failed("out-of-memory")),
    ]
    scores = score(outcomes, "basic")
    assert scores.metrics["wer"] == 1 / 6
    assert scores.metrics["empty_share"] == 0.0
    assert scores.metrics["failures"] == 2.0
    assert scores.failures == {"unreadable-audio": 1, "out-of-memory": 1}
    # As empty hypotheses they would have made five errors in ten words.
    as_empty = [
        Outcome(o.row, Hypothesis("") if isinstance(o.result, Failed) else o.result)
        for o in outcomes
    ]
    assert score(as_empty, "basic").metrics["wer"] == 5 / 10


def test_orthographic_rate_counts_case_and_marks():
    outcomes = [Outcome(row("a", "Yes, Anna came."), Hypothesis("yes, anna came."))]
    metrics = score(outcomes, "basic").metrics
    assert metrics["wer"] == 0.0
    assert metrics["orthographic_wer"] == 2 / 3
    outcomes = [Outcome(row("a", "Yes, it\u2019s  Anna."), Hypothesis("Yes, it's Anna."))]
    assert score(outcomes, "basic").metrics["orthographic_wer"] == 0.0


def test_tables_by_source():
    outcomes = [
        Outcome(row("a", "one two", source="/x/clean.jsonl"), Hypothesis("one two")),
        Outcome(row("b", "one two", source="/x/clean.jsonl"), Hypothesis("one")),
        Outcome(row("c", "one two", source="/x/noisy.jsonl"), Hypothesis("three four", False)),
        Outcome(row("d", "one two", source="/x/noisy.jsonl"), Failed("unreadable-audio")),
    ]
    scores = score(outcomes, "basic")
    clean, noisy = scores.sources
    assert (clean["source"], clean["rows"], clean["wer"]) == ("clean", 2, 0.25)
    assert (noisy["source"], noisy["wer"], noisy["failures"]) == ("noisy", 1.0, 1.0)
    assert noisy["unfinished_share"] == 1.0
    assert scores.metrics["wer"] == 3 / 6
    assert score(outcomes[:2], "basic").sources == []


def test_a_column_may_name_the_source():
    outcomes = [
        Outcome(row("a", "one", dataset="ami"), Hypothesis("one")),
        Outcome(row("b", "one", source="x.jsonl", dataset="earnings"), Hypothesis("two")),
    ]
    assert [line["source"] for line in score(outcomes, "basic").sources] == ["ami", "earnings"]


def test_silence_has_no_rate():
    metrics = score([Outcome(row("a", ""), Hypothesis(""))], "basic").metrics
    assert "wer" not in metrics
    assert metrics["empty_share"] == 1.0
    metrics = score([Outcome(row("a", ""), Failed("x"))], "basic").metrics
    assert metrics == {"failures": 1.0}
