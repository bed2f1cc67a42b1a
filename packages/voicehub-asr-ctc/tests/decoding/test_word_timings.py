"""Words and their times from token frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicehub.models.results import WordTiming
from voicehub_asr_ctc.decoding import Alignment, TokenTexts, force_align, word_timings

CHARACTERS = ("<b>", "|", "a", "b", "c")
PIECES = ("<b>", "▁ab", "▁c", "a", "▁")


def alignment(*tokens: tuple[int, int, int]) -> Alignment:
    ids, frames, ends = zip(*tokens, strict=True) if tokens else ((), (), ())
    return Alignment(ids, frames, ends, (1.0,) * len(ids), 0.0)


def test_characters_with_a_delimiter():
    found = word_timings(
        alignment((2, 1, 2), (3, 4, 6), (1, 7, 8), (4, 10, 11)), CHARACTERS, frame_seconds=0.02
    )
    assert [timing.word for timing in found] == ["ab", "c"]
    assert [(t.start, t.end) for t in found] == [
        pytest.approx((0.02, 0.12)),
        pytest.approx((0.2, 0.22)),
    ]


def test_pieces_that_mark_the_start_of_a_word():
    found = word_timings(
        alignment((1, 0, 1), (3, 2, 3), (2, 5, 6), (4, 7, 8), (3, 9, 10)),
        PIECES,
        frame_seconds=1.0,
        word_delimiter="▁",
        offset=100.0,
    )
    assert found == [
        WordTiming("aba", 100.0, 103.0),
        WordTiming("c", 105.0, 106.0),
        WordTiming("a", 109.0, 110.0),
    ]


def test_delimiters_alone_make_no_words():
    silence = alignment((1, 0, 1), (1, 3, 4))
    assert word_timings(silence, CHARACTERS, 0.02) == []
    assert word_timings(alignment(), CHARACTERS, 0.02) == []
    surrounded = alignment((1, 0, 1), (2, 2, 3), (1, 4, 5), (1, 6, 7))
    assert word_timings(surrounded, CHARACTERS, 1.0) == [WordTiming("a", 2.0, 3.0)]


@given(st.lists(st.integers(1, 4), max_size=20), st.sampled_from([CHARACTERS, PIECES]))
def test_timed_words_are_the_words_of_the_text_in_order(ids, tokens):
    roles = TokenTexts.from_tokens(tokens, "|" if "|" in tokens else "▁")
    found = word_timings(alignment(*((t, 2 * i, 2 * i + 1) for i, t in enumerate(ids))), roles, 1.0)
    assert [timing.word for timing in found] == roles.words(ids)
    edges = [edge for timing in found for edge in (timing.start, timing.end)]
    assert edges == sorted(edges)


def test_a_beam_hypothesis_gets_times_by_forced_alignment(draw_log_probs):
    log_probs = draw_log_probs(40, 5, seed=1)
    found = word_timings(force_align(log_probs, [2, 3, 1, 4]), CHARACTERS, 0.02)
    assert [timing.word for timing in found] == ["ab", "c"]
    assert 0 <= found[0].start < found[0].end <= found[1].start < found[1].end <= 0.8
