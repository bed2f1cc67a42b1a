"""The lexicon decoder against enumeration of all paths."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from voicehub.errors import ConfigurationError, DataError
from voicehub_asr_ctc.decoding import NgramLM, TokenTexts
from voicehub_asr_ctc.decoding.lexicon import LexiconDecoder

pytest.importorskip("flashlight.lib.text", reason="the optional extra `lm` is not installed")
pytest.importorskip("kenlm", reason="the optional extra `lm` is not installed")

TOKENS = ("<b>", "|", "a", "b")
WORDS = ("a", "ab", "ba")
ROLES = TokenTexts.from_tokens(TOKENS)
WIDE = {"beam_size": 2000, "beam_threshold": 1e9}


def best_in_lexicon(log_probs, alpha, beta, sentence):
    best = (-math.inf, None)
    for path in itertools.product(range(4), repeat=len(log_probs)):
        ids = [token for token, _ in itertools.groupby(path) if token != 0]
        words = ROLES.words(ids)
        if all(word in WORDS for word in words):
            score = sum(log_probs[t, token] for t, token in enumerate(path))
            best = max(best, (score + alpha * sentence(words) + beta * len(words), tuple(words)))
    return best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("with_lm", [False, True])
def test_it_finds_the_best_path_within_the_lexicon(
    draw_log_probs, score_sentence, arpa_file, seed, with_lm
):
    log_probs = draw_log_probs(1 + seed, 4, seed)
    lm = NgramLM(arpa_file) if with_lm else None
    decode = LexiconDecoder(WORDS, TOKENS, lm, alpha=0.7, beta=0.4, **WIDE)
    best, *_ = decode(log_probs)
    score, words = best_in_lexicon(
        log_probs, 0.7, 0.4, lambda ws: score_sentence(lm, ws) if lm else 0.0
    )
    assert best.score == pytest.approx(score, abs=1e-3)
    assert tuple(ROLES.words(best.ids)) == words
    assert best.ctc_score + best.lm_score == pytest.approx(best.score)


def test_words_outside_the_lexicon_are_never_written(draw_log_probs):
    decode = LexiconDecoder(WORDS, TOKENS)
    for seed in range(20):
        for hypothesis in decode(draw_log_probs(12, 4, seed)):
            assert set(ROLES.words(hypothesis.ids)) <= set(WORDS)


def test_pieces_without_a_delimiter_token(draw_log_probs):
    pieces = ("<b>", "▁a", "▁b", "a")
    decode = LexiconDecoder(
        ["a", "ba"],
        pieces,
        word_delimiter="▁",
        spell={"a": [1], "ba": [2, 3]}.__getitem__,
        **WIDE,
    )
    roles = TokenTexts.from_tokens(pieces, "▁")
    found = {tuple(roles.words(h.ids)) for h in decode(draw_log_probs(6, 4, seed=0))}
    assert all(set(words) <= {"a", "ba"} for words in found)
    assert len(found) > 3


def test_lexicon_and_input_are_checked():
    with pytest.raises(ConfigurationError, match="no word"):
        LexiconDecoder([], TOKENS)
    with pytest.raises(ConfigurationError, match="'abz' cannot be spelt"):
        LexiconDecoder(["abz"], TOKENS)
    decode = LexiconDecoder(WORDS, TOKENS)
    with pytest.raises(DataError, match=r"\(T, 4\)"):
        decode(np.zeros((3, 5)))
    with pytest.raises(DataError, match="NaN"):
        decode(np.full((3, 4), math.nan))
