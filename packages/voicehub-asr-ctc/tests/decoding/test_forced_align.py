"""Viterbi alignment of given labels."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import DataError
from voicehub_asr_ctc.decoding import force_align, minimum_frames


@settings(deadline=None, max_examples=40)
@given(
    frames=st.integers(1, 6),
    size=st.integers(2, 4),
    blank_from_end=st.integers(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_is_the_best_of_all_paths(
    brute_force, draw_log_probs, frames, size, blank_from_end, seed
):
    log_probs = draw_log_probs(frames, size, seed)
    blank = (size - 1) * blank_from_end
    for ids, score in brute_force.best_paths(log_probs, blank).items():
        alignment = force_align(log_probs, ids, blank)
        assert alignment.ids == ids
        assert alignment.score == pytest.approx(score, abs=1e-9)
        spans = list(zip(alignment.frames, alignment.ends, strict=True))
        assert all(start < end for start, end in spans)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


@settings(deadline=None)
@given(st.lists(st.integers(1, 2), max_size=4))
def test_minimum_frames_is_where_alignment_becomes_possible(ids):
    needed = minimum_frames(ids)
    log_probs = np.full((needed, 3), math.log(1 / 3))
    assert force_align(log_probs, ids).ids == tuple(ids)
    if needed:
        with pytest.raises(DataError, match=f"need at least {needed} frames"):
            force_align(log_probs[1:], ids)


def test_many_labels_align(draw_log_probs):
    ids = [1 + i % 3 for i in range(400)]
    alignment = force_align(draw_log_probs(1000, 4, seed=0), ids)
    assert alignment.ids == tuple(ids)


def test_nothing_aligns_to_blanks_alone(draw_log_probs):
    log_probs = draw_log_probs(5, 3, seed=0)
    alignment = force_align(log_probs, ())
    assert alignment.ids == ()
    assert alignment.score == pytest.approx(log_probs[:, 0].sum())


def test_impossible_labels_are_an_error():
    with np.errstate(divide="ignore"):
        log_probs = np.log(np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]))
    with pytest.raises(DataError, match="No path"):
        force_align(log_probs, [2])
