"""n-gram models of kenlm."""

from __future__ import annotations

import math
import sys

import pytest

from voicehub.errors import ConfigurationError, OptionalDependencyError
from voicehub_asr_ctc.decoding import NgramLM
from voicehub_asr_ctc.decoding.lexicon import LexiconDecoder


@pytest.fixture
def kenlm():
    return pytest.importorskip("kenlm", reason="the optional extra `lm` is not installed")


def test_scores_are_the_natural_logarithms_of_the_file(kenlm, arpa_file):
    lm = NgramLM(arpa_file)
    first, after_a = lm.score(lm.initial_state(), "a")
    assert first == pytest.approx(-0.3 * math.log(10), rel=1e-5)
    second, after_ab = lm.score(after_a, "ab")
    assert second == pytest.approx(-0.2 * math.log(10), rel=1e-5)
    assert lm.finish(after_ab) == pytest.approx(-0.7 * math.log(10), rel=1e-5)
    # Unseen pair: the back-off weight of "a" and the unigram.
    assert lm.score(after_a, "ba")[0] == pytest.approx((-0.2 - 1.1) * math.log(10), rel=1e-5)
    assert lm.order == 2
    assert "ab" in lm
    assert "zzz" not in lm


def test_scoring_leaves_the_state_as_it_was(kenlm, arpa_file):
    lm = NgramLM(arpa_file)
    state = lm.initial_state()
    before = lm.score(state, "a")[0]
    lm.score(state, "ba")
    lm.finish(state)
    assert lm.score(state, "a")[0] == before


def test_unknown_words_pay_the_penalty(kenlm, arpa_file):
    plain, strict = NgramLM(arpa_file), NgramLM(arpa_file, unknown_penalty=-5.0)
    state = plain.initial_state()
    known = plain.score(state, "a")[0]
    unknown = plain.score(state, "zzz")[0]
    assert strict.score(state, "a")[0] == known
    assert strict.score(state, "zzz")[0] == pytest.approx(unknown - 5.0)


def test_loading_prints_nothing(kenlm, arpa_file, capfd):
    NgramLM(arpa_file)
    assert capfd.readouterr() == ("", "")


def test_a_missing_file_and_a_file_of_another_kind_are_named(kenlm, tmp_path):
    with pytest.raises(ConfigurationError, match="nowhere.arpa"):
        NgramLM(tmp_path / "nowhere.arpa")
    other = tmp_path / "notes.txt"
    other.write_text("not a language model\n")
    with pytest.raises(ConfigurationError, match="cannot read .*notes.txt; an ARPA"):
        NgramLM(other)
    with pytest.raises(ConfigurationError, match="at most 0"):
        NgramLM(other, unknown_penalty=1.0)


def test_without_kenlm_the_message_names_the_extra(monkeypatch, arpa_file):
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(OptionalDependencyError, match=r"voicehub-asr-ctc\[lm\]"):
        NgramLM(arpa_file)


def test_without_flashlight_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "flashlight.lib.text", None)
    with pytest.raises(OptionalDependencyError, match=r"voicehub-asr-ctc\[lm\]"):
        LexiconDecoder(["a"], ("<b>", "|", "a"))
