"""Tokenizers over a given vocabulary."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError
from voicehub_hf.encoders import CTC_ENCODERS
from voicehub_hf.tokenization import ctc_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
VOCABULARY = ("<pad>", "<unk>", "|", *LETTERS, "é", "я", "字")
texts = st.lists(
    st.text(st.sampled_from([*LETTERS, "é", "я", "字"]), min_size=1, max_size=6), max_size=5
).map(" ".join)


@pytest.fixture(scope="module", params=CTC_ENCODERS)
def tokenizer(request):
    return ctc_tokenizer(request.param, VOCABULARY)


def test_ids_are_positions_in_the_vocabulary(tokenizer):
    assert tokenizer.get_vocab() == {token: i for i, token in enumerate(VOCABULARY)}
    assert len(tokenizer) == len(VOCABULARY)
    assert tokenizer.pad_token_id == 0
    assert tokenizer.unk_token_id == 1


@settings(deadline=None)
@given(text=texts)
def test_text_survives_encoding_and_ctc_decoding(tokenizer, text):
    ids = tokenizer(text).input_ids
    assert ids == [VOCABULARY.index("|" if character == " " else character) for character in text]
    # As a model would emit it: each token for two frames, blanks in between.
    frames = itertools.chain.from_iterable((i, i, 0) for i in ids)
    assert tokenizer.decode(list(frames)) == text


def test_unknown_characters_become_the_unknown_token(tokenizer):
    assert tokenizer("aQb").input_ids == [3, 1, 4]


def test_special_tokens_lie_where_the_vocabulary_puts_them():
    for model_type in CTC_ENCODERS:
        tokens = ("a", "b", "_", "[UNK]", "[PAD]")
        made = ctc_tokenizer(
            model_type, tokens, pad_token="[PAD]", unk_token="[UNK]", word_delimiter_token="_"
        )
        assert made.pad_token_id == 4
        assert made("ab b?").input_ids == [0, 1, 2, 1, 3]
        assert made.decode([0, 4, 0, 2, 2, 1]) == "aa b"


def test_bad_vocabularies_are_named():
    with pytest.raises(ConfigurationError, match=r"repeats \['a'\]"):
        ctc_tokenizer("wav2vec2", (*VOCABULARY, "a"))
    with pytest.raises(ConfigurationError, match="pad token '<pad>'"):
        ctc_tokenizer("wav2vec2", VOCABULARY[1:])
    with pytest.raises(ConfigurationError, match="space token '_'"):
        ctc_tokenizer("hubert", VOCABULARY, word_delimiter_token="_")
