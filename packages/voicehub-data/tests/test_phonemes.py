"""Phonemes by espeak-ng: punctuation stays, languages differ, what is missing is named."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from voicehub.errors import ConfigurationError, OptionalDependencyError
from voicehub_data.text.phonemes import Phonemizer


@pytest.fixture(scope="module")
def english() -> Phonemizer:
    pytest.importorskip("espeakng_loader", reason="espeak-ng is an extra")
    return Phonemizer("en-us")


def test_words_become_phonemes_with_stress(english: Phonemizer) -> None:
    spoken = english("Hello world")
    assert spoken.split() == ["h\u0259l\u02c8o\u028a", "w\u02c8\u025c\u02d0ld"]


def test_punctuation_and_single_spaces_stay(english: Phonemizer) -> None:
    spoken = english("Hello,   world! Is it you?")
    assert spoken.count(",") == spoken.count("!") == spoken.count("?") == 1
    assert "  " not in spoken and spoken.endswith("?")
    assert english("...") == "..." and english("  ") == ""


def test_long_texts_are_said_to_their_end(english: Phonemizer) -> None:
    spoken = english("one two three " * 60)
    assert spoken.count("t\u02c8u\u02d0") == 60


def test_another_language_and_one_that_is_not_there(english: Phonemizer) -> None:
    assert Phonemizer("de")("ich") == "\u026a\u00e7"
    with pytest.raises(ConfigurationError, match="no voice for 'xx-nowhere'"):
        Phonemizer("xx-nowhere")


def test_without_espeak_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def absent(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "espeakng_loader":
            raise ImportError(name)
        return original(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(OptionalDependencyError, match=r"pip install"):
        Phonemizer()
