"""Labels: what is left of a transcript when annotators' marks are gone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub_data.text import get_normalizer
from voicehub_data.text.labels import (
    LABEL_STEPS,
    has_punctuation,
    is_partly_transcribed,
    normalize_label,
)

#: step -> transcripts and their labels; each pair fails where the step is left out.
GOLDEN = {
    "unicode": [
        ("don\u2019t", "don't"),
        ("\u201cyes\u201d, she said", '"yes", she said'),
        ("ﬁne ﬂour", "fine flour"),
        ("cafe\u0301", "café"),
        ("\uff21\uff22\uff23 \uff11\uff12\uff13", "ABC 123"),
        ("soft\u00adware", "software"),
        ("zero\u200bwidth", "zerowidth"),
        ("\ufeffhello", "hello"),
        ("wait\u2026", "wait..."),
        ("№ 5", "No 5"),
        ("don`t and don\u00b4t", "don't and don't"),
        ("a\x00b", "ab"),
    ],
    "punctuation-tags": [
        ("HELLO <COMMA> WORLD <PERIOD>", "HELLO, WORLD."),
        ("WHO <QUESTIONMARK>", "WHO?"),
        ("GO <EXCLAMATIONPOINT>", "GO!"),
        ("well <comma> yes", "well, yes"),
        ("A<COMMA>B", "A,B"),
        ("YES <COMMA> <COMMA> NO", "YES,, NO"),
        ("SO <PERIOD> <SIL> NEXT", "SO. NEXT"),
    ],
    "markup": [
        ("hello <unk> world", "hello world"),
        ("a <b>bold</b> word", "a bold word"),
        ("<s>start</s>", "start"),
        ("<|en|> yes", "yes"),
        ("<noise>", ""),
        ('a <font color="red">red</font> car', "a red car"),
        ("an <outer <inner>> one", "an one"),
        ("one<br/>two", "one two"),
        ("</s> end", "end"),
        ("<#laugh> oh", "oh"),
    ],
    "brackets": [
        ("hello [noise] world", "hello world"),
        ("[laughter]", ""),
        ("[a [b] c] d", "d"),
        ("yes {BR} no", "yes no"),
        ("so (laughter) there", "so there"),
        ("thanks (Applause)", "thanks"),
        ("( music ) go on", "go on"),
        ("half [open", "half open"),
        ("closed] half", "closed half"),
    ],
    "percent": [
        ("five per cent", "five percent"),
        ("FIVE PER CENT", "FIVE PERCENT"),
        ("Per cent of what", "Percent of what"),
        ("ten per-cent", "ten percent"),
        ("ten per  cent.", "ten percent."),
    ],
    "contractions": [
        ("do n't go", "don't go"),
        ("DO N'T GO", "DON'T GO"),
        ("ca n 't", "can't"),
        ("wo n't", "won't"),
        ("don 't", "don't"),
        ("did n' t", "didn't"),
        ("it 's late", "it's late"),
        ("we 're here", "we're here"),
        ("I 'M TOLD", "I'M TOLD"),
        ("they 'll see", "they'll see"),
        ("you 've won", "you've won"),
        ("he 'd know", "he'd know"),
        ("two o 'clock", "two o'clock"),
        ("y 'all", "y'all"),
        ("yes ma 'am", "yes ma'am"),
    ],
    "spaces": [
        ("  a   b\t\nc ", "a b c"),
        ("hello , world .", "hello, world."),
        ("really ? yes !", "really? yes!"),
        ("wait . . .", "wait..."),
        ("first ; second : third", "first; second: third"),
        ("a\u00a0b\u3000c", "a b c"),
        ("   ", ""),
    ],
}
PAIRS = [pair for pairs in GOLDEN.values() for pair in pairs]
#: What looks like one of the above and is speech.
KEPT = [
    "rock 'n' roll",
    "he said 's' twice",
    "told 'em all",
    "three < five > two",
    "he came (so they say) alone",
    "3.5 times .5",
    "Well, that's it: no more!",
    "McDonald in the U.S. of 1990",
    "in the '60s",
    "sugar per centner",
    "naïve Ærø straße",
    "हिन्दी में।",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "what's this?",
    "the n't form",
]


def test_there_are_enough_pairs_for_every_step():
    assert len(PAIRS) >= 60
    assert list(GOLDEN) == [step.name for step in LABEL_STEPS]


@pytest.mark.parametrize(("text", "label"), PAIRS)
def test_golden(text, label):
    assert normalize_label(text) == label
    assert normalize_label(label) == label


@pytest.mark.parametrize("text", KEPT)
def test_speech_is_left_alone(text):
    assert normalize_label(text) == text


@pytest.mark.parametrize("step", LABEL_STEPS, ids=lambda step: step.name)
def test_no_step_is_idle(step):
    others = [other for other in LABEL_STEPS if other is not step]

    def without(text: str) -> str:
        for other in others:
            text = other(text)
        return text

    changed = [text for text, label in GOLDEN[step.name] if without(text) != label]
    assert len(changed) >= len(GOLDEN[step.name]) * 0.7


PIECES = [
    "<", ">", "[", "]", "{", "}", "(", ")", "<COMMA>", "<PERIOD>", "<b>", "</", "<unk>", "laughter",
    "per", "cent", "-", " ", "  ", "do", "n", "'", "t", "s", "o", "clock", "I", "'m", ",", ".", "?",
    "\u2019", "\u00b4", "\u0301", "e", "\u200b", "\u00ad", "ﬁ", "İ", "\u2026", "\u037e", "9", "é",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_idempotent_on_what_the_rules_are_about(text):
    once = normalize_label(text)
    assert normalize_label(once) == once


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_idempotent_on_any_text(text):
    once = normalize_label(text)
    assert normalize_label(once) == once


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["hello", "World", "it's", "I", "don't", "go"]), max_size=8))
def test_punctuation_is_never_invented(words):
    label = normalize_label(" ".join(words))
    assert label == " ".join(words)
    assert not has_punctuation(label)


def test_preset():
    normalize = get_normalizer("labels")
    assert normalize.name == "labels"
    assert normalize("IT 'S <COMMA> [noise] FINE") == "IT'S, FINE"


def test_orthographic_preset_keeps_case_marks_and_tags():
    normalize = get_normalizer("orthographic")
    assert normalize("  \u201cYes\u201d ,  it\u2019s <COMMA> Fine") == '"Yes", it\'s <COMMA> Fine'


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("<unk> and so on", True),
        ("and so on <unk>", True),
        ("<Foreign> oui", True),
        ("  <overlap>", True),
        ("ignore_time_segment_in_scoring", True),
        ("and <unk> so on", False),
        ("<noise> and so on", False),
        ("unknown words", False),
    ],
)
def test_what_lacks_words_at_an_edge(raw, expected):
    assert is_partly_transcribed(raw) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello, world", True),
        ("stop.", True),
        ("what?", True),
        ("日本語、テスト。", True),
        ("three 3.5 and 10:30", False),
        ("don't rock 'n' roll", False),
        ("twenty-one", False),
        ("", False),
    ],
)
def test_what_counts_as_punctuation(text, expected):
    assert has_punctuation(text) is expected
