"""Texts survive the way to labels and back; nothing is lost without a word."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError, DataError
from voicehub_asr_ctc.config import (
    CharactersConfig,
    GivenTokenizerConfig,
    SentencePieceConfig,
    SubwordsConfig,
)
from voicehub_asr_ctc.tokenizers import (
    CharacterTokenizer,
    build_tokenizer,
    load_tokenizer,
    save_tokenizer,
)
from voicehub_asr_ctc.tokenizers.vocabulary import script_of, survey

TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    "pack my box with five dozen liquor jugs",
    "sphinx of black quartz judge my vow",
    "hello all fellow llamas",
] * 3
CONFIGS = [
    CharactersConfig(),
    SubwordsConfig(vocab_size=64),
    SentencePieceConfig(vocab_size=64),
    SentencePieceConfig(vocab_size=64, algorithm="bpe"),
]
every_kind = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.kind}-{len(repr(c))}")
BUILT = {id(config): build_tokenizer(config, TEXTS, with_unknown=True)[0] for config in CONFIGS}


@every_kind
@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=6), max_size=5))
def test_text_comes_back(config, words):
    tokenizer, text = BUILT[id(config)], " ".join(words)
    encoding = tokenizer.encode(text)
    assert tokenizer.decode(encoding.ids) == text
    assert encoding.unknown == ()
    assert tokenizer.blank_id not in encoding.ids
    assert all(0 <= label < len(tokenizer) for label in encoding.ids)


@every_kind
def test_unknown_characters_are_left_out_and_told(config):
    encoding = BUILT[id(config)].encode("hé llo ß")
    assert BUILT[id(config)].decode(encoding.ids) == "h llo"
    assert encoding.unknown == ("é", "ß")


@every_kind
def test_transformers_decodes_the_frames_alike(config):
    tokenizer = BUILT[id(config)]
    text = "hello fellow llamas"
    path = []
    for label in tokenizer.encode(text).ids:
        path += [label, label, tokenizer.blank_id]
    assert tokenizer.to_transformers("wav2vec2").decode(path) == text


@every_kind
def test_a_saved_tokenizer_is_the_same(config, tmp_path):
    tokenizer = BUILT[id(config)]
    save_tokenizer(tokenizer, tmp_path)
    loaded, report = build_tokenizer(GivenTokenizerConfig(path=str(tmp_path)), [])
    assert report is None
    assert loaded.fingerprint() == tokenizer.fingerprint()
    assert loaded.encode("my vow").ids == tokenizer.encode("my vow").ids


def test_a_replaced_vocabulary_file_is_refused(tmp_path):
    save_tokenizer(CharacterTokenizer.from_characters("abc"), tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps({"<pad>": 0, "|": 1, "x": 2, "y": 3, "z": 4}))
    with pytest.raises(ConfigurationError, match="not those that were saved"):
        load_tokenizer(tmp_path)


def test_a_directory_without_a_tokenizer_says_so(tmp_path):
    with pytest.raises(ConfigurationError, match=r"ctc_tokenizer\.json is missing"):
        load_tokenizer(tmp_path)


def test_rare_characters_are_reported():
    report = survey(["aab", "ac", "aa"], min_count=2)
    assert report.characters == {"a": 5}
    assert report.dropped == {"b": 1, "c": 1}
    assert report.affected == 2
    assert "2 dropped" in report.describe() and "'b' 1" in report.describe()


@pytest.mark.parametrize("kind", [CharactersConfig, SubwordsConfig])
def test_a_rare_character_has_no_token(kind):
    texts = ["aabb"] * 5 + ["abz"]
    tokenizer, report = build_tokenizer(kind(min_count=2), texts)
    assert report.dropped == {"z": 1}
    assert tokenizer.encode("zab").unknown == ("z",)


def test_no_text_is_an_error():
    with pytest.raises(DataError, match="no vocabulary can be built"):
        build_tokenizer(CharactersConfig(), ["", "  "])


def test_too_small_a_vocabulary_is_refused():
    with pytest.raises(ConfigurationError, match="has no room for"):
        build_tokenizer(SubwordsConfig(vocab_size=10), TEXTS)


def test_a_missing_model_file_is_named(tmp_path):
    path = tmp_path / "none.model"
    with pytest.raises(ConfigurationError, match=r"none\.model cannot be read"):
        build_tokenizer(SentencePieceConfig(path=str(path)), [])


def test_the_word_delimiter_is_no_character_of_a_text():
    tokenizer = CharacterTokenizer.from_characters("ab|")
    assert tokenizer.encode("a|b").unknown == ("|",)
    assert tokenizer.decode(tokenizer.encode("a b").ids) == "a b"


@pytest.mark.parametrize("tokens", [["a", "b"], ["<pad>", "a", "a"], ["<pad>", "ab"]])
def test_wrong_character_vocabularies_are_refused(tokens):
    with pytest.raises(ConfigurationError, match="character vocabulary needs"):
        CharacterTokenizer(tokens)


@pytest.mark.parametrize(
    ("character", "script"),
    [("a", "LATIN"), ("\u044f", "CYRILLIC"), ("\u03b1", "GREEK"), ("7", None), (",", None)],
)
def test_scripts(character, script):
    assert script_of(character) == script
