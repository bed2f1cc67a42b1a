"""Prefix beam search against enumeration of all alignments, and against a textbook version."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError, DataError
from voicehub_asr_ctc.decoding import Hypothesis, NgramLM, TokenTexts, beam_search, greedy

WIDE = {"beam_size": 5000, "token_threshold": -math.inf, "beam_threshold": math.inf}
#: Blank, delimiter and two letters; the same with pieces that carry the mark of a word start.
CHARACTERS = ("<b>", "|", "a", "b")
PIECES = ("<b>", "▁a", "▁b", "a")

cases = given(
    frames=st.integers(0, 5),
    size=st.integers(2, 4),
    blank_from_end=st.integers(0, 1),
    seed=st.integers(0, 2**32 - 1),
    sharpness=st.sampled_from([0.3, 2.0, 8.0]),
)


def by_ids(found: list[Hypothesis]) -> dict[tuple[int, ...], Hypothesis]:
    assert len({hypothesis.ids for hypothesis in found}) == len(found)
    return {hypothesis.ids: hypothesis for hypothesis in found}


@settings(deadline=None, max_examples=40)
@cases
def test_a_wide_beam_sums_over_all_alignments(
    brute_force, draw_log_probs, frames, size, blank_from_end, seed, sharpness
):
    log_probs = draw_log_probs(frames, size, seed, sharpness)
    blank = (size - 1) * blank_from_end
    expected = brute_force.sums(log_probs, blank)
    found = by_ids(beam_search(log_probs, blank, **WIDE))
    assert found.keys() == expected.keys()
    for ids, score in expected.items():
        assert found[ids].score == pytest.approx(score, abs=1e-9)
        assert found[ids].lm_score == 0.0
    assert sum(math.exp(hypothesis.score) for hypothesis in found.values()) == pytest.approx(1)


def fused(brute_force, score_sentence, log_probs, lm, alpha, beta, tokens, delimiter):
    roles = TokenTexts.from_tokens(tokens, delimiter)
    scores = {}
    for ids, score in brute_force.sums(log_probs, 0).items():
        words = roles.words(ids)
        scores[ids] = score + alpha * score_sentence(lm, words) + beta * len(words)
    return scores


@settings(deadline=None, max_examples=40)
@given(
    frames=st.integers(0, 5),
    seed=st.integers(0, 2**32 - 1),
    sharpness=st.sampled_from([0.3, 2.0, 8.0]),
    alpha=st.sampled_from([0.0, 0.6, 2.0]),
    beta=st.sampled_from([-1.0, 0.0, 1.5]),
    vocabulary=st.sampled_from([(CHARACTERS, "|"), (PIECES, "▁")]),
)
def test_a_wide_beam_with_a_language_model_equals_enumeration(
    brute_force, score_sentence, draw_log_probs, toy_lm, frames, seed, sharpness, alpha, beta,
    vocabulary,
):  # fmt: skip
    tokens, delimiter = vocabulary
    log_probs = draw_log_probs(frames, 4, seed, sharpness)
    expected = fused(brute_force, score_sentence, log_probs, toy_lm, alpha, beta, tokens, delimiter)
    found = beam_search(
        log_probs, 0, lm=toy_lm, alpha=alpha, beta=beta, tokens=tokens,
        word_delimiter=delimiter, **WIDE,
    )  # fmt: skip
    assert by_ids(found).keys() == expected.keys()
    for hypothesis in found:
        assert hypothesis.score == pytest.approx(expected[hypothesis.ids], abs=1e-9)
        assert hypothesis.ctc_score + hypothesis.lm_score == pytest.approx(hypothesis.score)
    assert found[0].score == pytest.approx(max(expected.values()))


def test_an_ngram_model_of_kenlm_equals_enumeration(
    brute_force, score_sentence, draw_log_probs, arpa_file
):
    pytest.importorskip("kenlm", reason="the optional extra `lm` is not installed")
    lm = NgramLM(arpa_file)
    log_probs = draw_log_probs(5, 4, seed=3)
    expected = fused(brute_force, score_sentence, log_probs, lm, 0.8, 0.5, CHARACTERS, "|")
    found = beam_search(log_probs, 0, lm=lm, alpha=0.8, beta=0.5, tokens=CHARACTERS, **WIDE)
    assert found[0].ids == max(expected, key=expected.__getitem__)
    for hypothesis in found:
        assert hypothesis.score == pytest.approx(expected[hypothesis.ids], abs=1e-6)


def test_the_language_model_changes_the_result(draw_log_probs, toy_lm):
    differ = 0
    for seed in range(20):
        log_probs = draw_log_probs(6, 4, seed, sharpness=1.0)
        with_lm = beam_search(log_probs, 0, lm=toy_lm, alpha=2.0, tokens=CHARACTERS)
        differ += with_lm[0].ids != beam_search(log_probs, 0)[0].ids
    assert differ >= 5


def textbook(log_probs, blank, beam_size, language=lambda ids: 0.0):
    """The search as papers print it: every token tried on every prefix, the best kept.

    Ranks by CTC score plus ``language``; returns CTC scores.
    """
    beam = {(): (0.0, -math.inf)}
    for row in log_probs:
        grown = defaultdict(lambda: (-math.inf, -math.inf))

        def add(ids, to_blank, to_token, grown=grown):
            b, t = grown[ids]
            grown[ids] = (np.logaddexp(b, to_blank), np.logaddexp(t, to_token))

        for ids, (in_blank, in_token) in beam.items():
            total = np.logaddexp(in_blank, in_token)
            add(ids, total + row[blank], -math.inf)
            for token, value in enumerate(row):
                if token == blank:
                    continue
                if ids and token == ids[-1]:
                    add(ids, -math.inf, in_token + value)
                    add((*ids, token), -math.inf, in_blank + value)
                else:
                    add((*ids, token), -math.inf, total + value)
        ranked = sorted(grown.items(), key=lambda item: -np.logaddexp(*item[1]) - language(item[0]))
        beam = {ids: scores for ids, scores in ranked[:beam_size] if max(scores) > -math.inf}
    return {ids: float(np.logaddexp(*scores)) for ids, scores in beam.items()}


@settings(deadline=None, max_examples=30)
@given(
    frames=st.integers(1, 25),
    size=st.integers(2, 7),
    beam_size=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
    sharpness=st.sampled_from([0.3, 2.0, 6.0]),
)
@example(frames=25, size=7, beam_size=1, seed=0, sharpness=0.3)
def test_early_cut_offs_lose_nothing_that_the_textbook_keeps(
    draw_log_probs, frames, size, beam_size, seed, sharpness
):
    log_probs = draw_log_probs(frames, size, seed, sharpness)
    expected = textbook(log_probs, 0, beam_size)
    found = beam_search(log_probs, 0, beam_size, token_threshold=-math.inf, beam_threshold=math.inf)
    assert by_ids(found).keys() == expected.keys()
    for hypothesis in found:
        assert hypothesis.score == pytest.approx(expected[hypothesis.ids], abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(
    frames=st.integers(1, 25),
    beam_size=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
    sharpness=st.sampled_from([0.3, 2.0]),
    beta=st.sampled_from([-1.0, 3.0]),
    vocabulary=st.sampled_from([(CHARACTERS, "|"), (PIECES, "▁")]),
)
def test_early_cut_offs_lose_nothing_with_a_language_model(
    draw_log_probs, toy_lm, frames, beam_size, seed, sharpness, beta, vocabulary
):
    """A word that closes may raise a prefix far above the others."""
    tokens, delimiter = vocabulary
    roles = TokenTexts.from_tokens(tokens, delimiter)

    def of_closed_words(ids):
        last = max((i for i, token in enumerate(ids) if roles.starts_word[token]), default=0)
        state, total = toy_lm.initial_state(), 0.0
        for word in roles.words(ids[:last]):
            value, state = toy_lm.score(state, word)
            total += 0.7 * value + beta
        return total

    log_probs = draw_log_probs(frames, 4, seed, sharpness)
    expected = textbook(log_probs, 0, beam_size, of_closed_words)
    found = beam_search(
        log_probs, 0, beam_size, toy_lm, 0.7, beta, tokens, word_delimiter=delimiter,
        token_threshold=-math.inf, beam_threshold=math.inf,
    )  # fmt: skip
    assert by_ids(found).keys() == expected.keys()
    for hypothesis in found:
        assert hypothesis.ctc_score == pytest.approx(expected[hypothesis.ids], abs=1e-9)


def test_default_thresholds_keep_the_best_of_confident_outputs(draw_log_probs):
    for seed in range(10):
        log_probs = draw_log_probs(60, 30, seed, sharpness=6.0)
        pruned = beam_search(log_probs, 0, 16)
        full = beam_search(log_probs, 0, 16, token_threshold=-math.inf, beam_threshold=math.inf)
        assert pruned[0].ids == full[0].ids
        assert pruned[0].score == pytest.approx(full[0].score, abs=1e-2)


def test_it_finds_labels_that_the_best_path_misses():
    # Graves et al. 2006: the blank wins each frame, yet "a" is more probable than nothing.
    log_probs = np.log(np.array([[0.6, 0.4], [0.6, 0.4]]))
    assert greedy(torch.from_numpy(log_probs)[None])[0].ids == ()
    best, *_ = beam_search(log_probs, 0)
    assert best.ids == (1,)
    assert best.score == pytest.approx(math.log(1 - 0.36))


def test_hypotheses_come_best_first_and_no_more_than_the_beam(draw_log_probs):
    found = beam_search(draw_log_probs(30, 8, seed=1, sharpness=1.0), 0, 5)
    scores = [hypothesis.score for hypothesis in found]
    assert len(found) == 5
    assert scores == sorted(scores, reverse=True)


def test_thousands_of_frames_neither_underflow_nor_recurse(draw_log_probs):
    best, *_ = beam_search(draw_log_probs(3000, 12, seed=2), 0, 4)
    assert math.isfinite(best.score)
    assert len(best.ids) > 1000


def test_impossible_tokens_are_never_written():
    with np.errstate(divide="ignore"):
        log_probs = np.log(np.array([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]))
    found = by_ids(beam_search(log_probs, 0, **WIDE))
    assert found.keys() == {(1,), (1, 1)}
    assert found[1, 1].score == pytest.approx(math.log(0.5))


def test_the_same_input_gives_the_same_result(draw_log_probs):
    log_probs = draw_log_probs(40, 9, seed=4, sharpness=0.5)
    assert beam_search(log_probs, 0) == beam_search(log_probs.copy(), 0)


def test_logits_are_refused():
    logits = np.random.default_rng(0).standard_normal((4, 5))
    with pytest.raises(DataError, match="log_softmax"):
        beam_search(logits, 0)


def test_nan_is_refused(draw_log_probs):
    log_probs = draw_log_probs(4, 5, seed=0).copy()
    log_probs[2, 1] = math.nan
    with pytest.raises(DataError, match="NaN"):
        beam_search(log_probs, 0)


@pytest.mark.parametrize("shape", [(5,), (1, 4, 3)])
def test_the_shape_is_checked(shape):
    with pytest.raises(DataError, match=r"\(T, V\)"):
        beam_search(np.zeros(shape), 0)


def test_settings_are_checked(draw_log_probs, toy_lm):
    log_probs = draw_log_probs(3, 4, seed=0)
    with pytest.raises(ConfigurationError, match="beam_size"):
        beam_search(log_probs, 0, 0)
    with pytest.raises(ConfigurationError, match="token strings"):
        beam_search(log_probs, 0, lm=toy_lm)
    with pytest.raises(ConfigurationError, match="3 token strings for 4 outputs"):
        beam_search(log_probs, 0, lm=toy_lm, tokens=("<b>", "|", "a"))
    with pytest.raises(DataError, match="blank"):
        beam_search(log_probs, 4)
