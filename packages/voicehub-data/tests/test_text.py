"""Normalisers: golden pairs, idempotence, and agreement with the one of transformers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError
from voicehub_data.manifest import read_manifest
from voicehub_data.text import (
    TextNormalizer,
    get_normalizer,
    list_normalizers,
    register_normalizer,
)

VOCABULARY = [
    "the",
    "a",
    "of",
    "and",
    "mr",
    "won't",
    "it's",
    "don't",
    "colour",
    "organise",
    "centre",
]
VOCABULARY += ["one", "five", "twenty", "hundred", "thousand", "first", "point", "zero", "nineteen"]
VOCABULARY += ["eighty", "dollars", "percent", "25", "3.5", "$7"]

BASIC = [
    ("Hello,  WORLD!", "hello world"),
    ("don't 'quote' rock 'n' roll", "don't quote rock n roll"),
    ("don\u2019t", "don't"),
    ("naïve Café №5", "naïve café no5"),
    ("ﬁne — A/B\t\nx_y", "fine a b x y"),
    ("日本語、テスト。", "日本語 テスト"),
    ("Straße", "straße"),
    ("हिन्दी में।", "हिन्दी में"),
    ("", ""),
    ("...", ""),
]

# The third column is what the normaliser of transformers gives, where ours differs by intent.
ENGLISH = [
    ("Mr. O'Neil won't pay twenty-five dollars, um, for the colour!",
     "mister o neil will not pay $25 for the color",
     "mister 0 neil will not pay $25 for the color"),
    ("I've got one hundred and five apples.", "i have got 105 apples", None),
    ("In nineteen eighty four, he'd been there.", "in 1984 he had been there", None),
    ("one two three", "123", None),
    ("The first of May, twenty twenty-five", "the 1st of may 2025", None),
    ("the twenty-first century", "the 21st century", None),
    ("two point five million people", "2500000 people", None),
    ("He said [laughter] hello (um) <unk> there", "he said hello there", None),
    ("10,000 people at 5:30 p.m.", "10000 people at 5 30 p m", None),
    ("She's gone. She's here. They're late; we'll see.",
     "she has gone she is here they are late we will see", None),
    ("fifty percent of the organisations analysed", "50% of the organizations analyzed", None),
    ("seventy five per cent", "75%", None),
    ("café naïve Ærø", "cafe naive aero", None),
    ("two thousand and five", "2005", None),
    ("nineteen hundred", "1900", None),
    ("five thousand three hundred twenty one", "5321", None),
    ("zero point zero five", "0.05", None),
    ("I can't; you shouldn't've", "i can not you should not have", None),
    ("thirty-two metres from the theatre in the neighbourhood",
     "32 meters from the theater in the neighborhood", None),
    ("the centre's coloured behaviour", "the center is colored behavior", None),
    ("I'm twenty one and she is forty", "i am 21 and she is 40", None),
    ("the cheque travelled grey", "the check traveled gray", None),
    ("flour, hour, four and tour", "flour hour 4 and tour", None),
    ("the U.S.A. is big...", "the u s a is big", "the u s a is big ."),
    ("one hundred and first", "101st", None),
    ("double o seven", "double o 7", "007"),
    ("1 2 3", "1 2 3", "one 2 3"),
    ("the wise rise of advertising surprises", "the wise rise of advertising surprises", None),
    ("", "", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), BASIC)
def test_basic(text, wanted):
    assert get_normalizer("basic")(text) == wanted


@pytest.mark.parametrize(("text", "wanted", "_theirs"), ENGLISH)
def test_english(text, wanted, _theirs):
    assert get_normalizer("english")(text) == wanted


@pytest.mark.parametrize(("text", "wanted", "theirs"), ENGLISH)
def test_whisper_english(text, wanted, theirs):
    pytest.importorskip("transformers")
    assert get_normalizer("whisper-english")(text).strip() == (wanted if theirs is None else theirs)


@pytest.mark.parametrize("name", ["none", "basic", "english"])
@given(text=st.text(max_size=60))
def test_any_text_is_idempotent_for_basic_and_never_fails(name, text):
    normalize = get_normalizer(name)
    once = normalize(text)
    assert isinstance(once, str)
    if name != "english":
        assert normalize(once) == once


@given(
    st.lists(
        st.sampled_from(VOCABULARY),
        max_size=12,
    )
)
def test_english_is_idempotent(words):
    normalize = get_normalizer("english")
    once = normalize(" ".join(words))
    assert normalize(once) == once


def test_english_is_idempotent_on_real_transcripts(recordings):
    normalize = get_normalizer("english")
    rows = read_manifest(recordings / "ljspeech" / "train.jsonl").rows
    for row in rows:
        once = normalize(row.text)
        assert normalize(once) == once


def test_presets_and_registration():
    assert {"none", "basic", "english", "whisper-english"} <= set(list_normalizers())
    with pytest.raises(ConfigurationError, match="Did you mean 'english'"):
        get_normalizer("englsh")
    own = TextNormalizer("mine", str.upper)
    assert get_normalizer(own) is own
    registered = register_normalizer("test-upper", str.upper)
    try:
        assert get_normalizer("test-upper")("a") == "A"
        assert registered.name == "test-upper"
        with pytest.raises(ConfigurationError, match="exists"):
            register_normalizer("test-upper", str.lower)
    finally:
        from voicehub_data.text import normalizer

        del normalizer._FACTORIES["test-upper"]
        del normalizer._BUILT["test-upper"]
