"""Truecasing: better than first words, never another letter, and only capitals that were learnt."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.cli.app import run
from voicehub.errors import DataError
from voicehub_data.manifest import read_manifest
from voicehub_data.text.casing import CasingScore, measure_casing
from voicehub_data.text.truecaser import Truecaser, fit_truecaser, is_mono_case

TEXT = Path(__file__).with_name("cased_english.txt")
LJSPEECH = (
    Path(os.environ.get("VOICEHUB_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))
    / "ljspeech"
)


@pytest.fixture(scope="module")
def sentences():
    return TEXT.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def truecaser(sentences):
    return fit_truecaser([line for i, line in enumerate(sentences) if i % 4])


def cross_validated(texts, folds):
    """Counts of all folds together: the truecaser's and those of first words alone."""
    totals = [[0] * 5, [0] * 5]
    for fold in range(folds):
        fitted = fit_truecaser([text for i, text in enumerate(texts) if i % folds != fold])
        for total, score in zip(totals, measure_casing(texts[fold::folds], fitted), strict=True):
            for at, name in enumerate(("words", "right", "capitals", "found", "claimed")):
                total[at] += getattr(score, name)
    return [CasingScore(*total) for total in totals]


def test_held_out_casing_is_ten_points_above_first_words(sentences, truecaser):
    held_out = sentences[::4]
    ours, first_words = measure_casing(held_out, truecaser)
    assert ours.words == first_words.words > 300
    assert ours.f1 >= first_words.f1 + 0.10
    assert ours.accuracy >= first_words.accuracy + 0.10
    assert ours.accuracy >= 0.95


@pytest.mark.skipif(not LJSPEECH.is_dir(), reason=f"no LJSpeech transcripts in {LJSPEECH}")
def test_ten_points_on_read_books():
    manifests = [read_manifest(LJSPEECH / f"{part}.jsonl") for part in ("train", "test")]
    texts = [row.text for manifest in manifests for row in manifest]
    ours, first_words = cross_validated(texts, 8)
    # Nine words in ten are lower case: over all words there are no ten points to gain.
    assert ours.f1 >= first_words.f1 + 0.10
    assert ours.accuracy > first_words.accuracy


def test_neighbours_decide():
    cased = ["We saw the White House today."] * 3 + ["They own a white house there."] * 4
    truecaser = fit_truecaser(cased)
    assert truecaser("at the white house today") == "At the White House today"
    assert truecaser("they own a white house") == "They own a white house"
    assert truecaser("some white paint") == "Some white paint"


@pytest.mark.parametrize(
    ("text", "cased"),
    [
        ("ON MONDAY ANNA WENT TO LISBON", "On Monday Anna went to Lisbon"),
        ("on monday anna went to lisbon. she slept.", "On Monday Anna went to Lisbon. She slept."),
        ("i think i'd go and i'll ask anna's mother", "I think I'd go and I'll ask Anna's mother"),
        ("it is mr. novak from the bbc", "It is Mr. Novak from the BBC"),
        ('he said, "anna!" and left', 'He said, "Anna!" and left'),
        ("zyx qqq 42", "Zyx qqq 42"),
        ("what? yes! no.", "What? Yes! No."),
        ("", ""),
    ],
)
def test_cases(truecaser, text, cased):
    assert truecaser(text) == cased
    assert truecaser(cased) == cased


def test_without_learning_only_first_words(sentences):
    assert Truecaser({})("HELLO THERE. MR. SMITH") == "Hello there. Mr. smith"


ALPHABET = [
    "anna",
    "BBC",
    "I",
    "'",
    "\u2019",
    ".",
    "?",
    " ",
    "ß",
    "İ",
    "Σ",
    "straße",
    "\u0301",
    "-",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(ALPHABET), max_size=12).map("".join) | st.text(max_size=20))
def test_only_case_changes_and_a_second_pass_changes_nothing(text):
    truecaser = Truecaser({"anna": {"Anna": 3}, "bbc": {"BBC": 2}, "i": {"I": 9, "i": 1}})
    once = truecaser(text)
    assert truecaser(once) == once
    assert once.lower() == text.lower() or "\u0130" in text or "\u03a3" in text.upper()
    assert [c for c in once if c in ",.?!;:"] == [c for c in text if c in ",.?!;:"]


def test_file_round_trip(truecaser, tmp_path):
    path = tmp_path / "deep" / "case.json"
    truecaser.save(path)
    loaded = Truecaser.load(path)
    assert loaded == truecaser
    assert loaded.fingerprint == truecaser.fingerprint
    assert json.loads(path.read_text(encoding="utf-8"))["format"] == "voicehub-truecaser"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such truecaser"),
        ("{", "no truecaser can be read"),
        ("[]", "this is no truecaser"),
        ('{"format": "other"}', "this is no truecaser"),
        ('{"format": "voicehub-truecaser", "version": 9}', "expected 1"),
        ('{"format": "voicehub-truecaser", "version": 1}', "words is missing"),
        (
            '{"format": "voicehub-truecaser", "version": 1, "words": {"anna": {"Bella": 1}}}',
            "expected spellings of 'anna'",
        ),
    ],
)
def test_damaged_files(tmp_path, content, words):
    path = tmp_path / "case.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=words):
        Truecaser.load(path)


def test_text_without_case_is_refused():
    with pytest.raises(DataError, match="0 of 2 texts have letters of both cases"):
        fit_truecaser(["ALL IN CAPITALS HERE", "and all without any"])
    with pytest.raises(DataError, match="no spelling was seen 3 times"):
        fit_truecaser(["One Anna went home."], min_count=3)


def test_headings_in_capitals_do_not_count():
    fitted = fit_truecaser(["CHAPTER ONE: ANNA", "Then Anna went.", "of her own free will"])
    assert (fitted.texts, fitted.skipped) == (2, 1)
    assert fitted("and anna went") == "And Anna went"


@pytest.mark.parametrize(
    ("text", "mono"),
    [
        ("HELLO THERE", True),
        ("hello there", True),
        ("Hello there", False),
        ("HELLO THERE friend", False),
        ("I am", False),
        ("OK", False),
        ("12345", False),
        ("ABCDEFGHIJKLMNOPQRSt", True),
    ],
)
def test_mono_case(text, mono):
    assert is_mono_case(text) is mono


class TestCommand:
    def test_fit_and_apply(self, tmp_path, capsys):
        out = tmp_path / "case.json"
        assert (
            run(
                [
                    "data",
                    "truecaser",
                    "fit",
                    str(TEXT),
                    "--out",
                    str(out),
                    "--held-out",
                    "4",
                    "--json",
                ]
            )
            == 0
        )
        answer = json.loads(capsys.readouterr().out.splitlines()[-1])
        held_out = answer["held_out"]
        assert held_out["truecaser"]["f1"] >= held_out["first_words"]["f1"] + 0.10
        assert run(["data", "truecaser", "apply", str(out), "PETER IN LISBON"]) == 0
        assert capsys.readouterr().out == "Peter in Lisbon\n"

    def test_manifest_as_text(self, tmp_path, write_jsonl, capsys):
        rows = [{"audio_filepath": "a.wav", "text": "Yes, Anna went home."}]
        out = tmp_path / "case.json"
        assert run(["data", "truecaser", "fit", str(write_jsonl(rows)), "--out", str(out)]) == 0
        assert "1 words are written with capitals" in capsys.readouterr().out

    def test_refusals(self, tmp_path, capsys):
        out = tmp_path / "case.json"
        out.write_text("{}", encoding="utf-8")
        assert run(["data", "truecaser", "fit", str(TEXT), "--out", str(out)]) != 0
        assert "the file exists" in capsys.readouterr().err
        missing = str(tmp_path / "no.txt")
        assert run(["data", "truecaser", "fit", missing, "--out", str(out), "--overwrite"]) != 0
        assert "no.txt" in capsys.readouterr().err
        assert out.read_text(encoding="utf-8") == "{}"
