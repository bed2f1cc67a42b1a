"""Why characters have no token is named."""

from __future__ import annotations

from collections import Counter

import pytest

from voicehub_asr_ctc.data.coverage import Coverage, explain
from voicehub_asr_ctc.tokenizers import CharacterTokenizer

LOWER = CharacterTokenizer.from_characters("abcdefghijklmnopqrstuvwxyz")
UPPER = CharacterTokenizer.from_characters("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


@pytest.mark.parametrize(
    ("text", "tokenizer", "name", "advice"),
    [
        ("HELLO", LOWER, "label-case", "data.text_case=lower"),
        ("hello", UPPER, "label-case", "data.text_case=upper"),
        ("привет", LOWER, "label-script", "CYRILLIC, the vocabulary in LATIN"),
        ("12 34!", LOWER, "unknown-characters", "text_normalizer"),
        ("café", LOWER, "unknown-characters", "text_normalizer"),
    ],
)
def test_causes(text, tokenizer, name, advice):
    cause = explain(Counter(tokenizer.encode(text).unknown), tokenizer)
    assert cause.name == name
    assert advice in cause.advice


def test_shares_count_characters_without_spaces():
    coverage = Coverage()
    for text in ("ab é", "abc", "éé"):
        coverage.add(text, LOWER.encode(text).unknown)
    assert (coverage.characters, coverage.unknown.total(), coverage.texts) == (8, 3, 2)
    assert coverage.share == 3 / 8
    assert "3 of 8 characters (37.5%, in 2 transcripts) have no token: 'é' 3" in coverage.describe()
