"""Every frame of a long recording comes from exactly one window."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError
from voicehub_asr_ctc.chunks import plan_chunks

HOP = 4


@settings(max_examples=200, deadline=None)
@given(samples=st.integers(1, 600), chunk=st.integers(20, 80), overlap=st.integers(0, 15))
def test_frames_are_covered_once(samples, chunk, overlap):
    taken = []
    for piece in plan_chunks(samples, HOP, chunk, overlap):
        assert piece.start == piece.first_frame * HOP
        assert 0 < piece.stop - piece.start <= chunk
        frames = -(-(piece.stop - piece.start) // HOP)
        stop = piece.first_frame + frames if piece.keep_to is None else piece.keep_to
        assert piece.first_frame <= piece.keep_from <= stop <= piece.first_frame + frames
        taken += range(piece.keep_from, stop)
    assert taken == list(range(-(-samples // HOP)))


def test_neighbours_share_the_overlap():
    chunks = plan_chunks(200, HOP, 80, 16)
    assert [(c.start, c.stop) for c in chunks] == [(0, 80), (64, 144), (128, 200)]
    assert [(c.keep_from, c.keep_to) for c in chunks] == [(0, 18), (18, 34), (34, None)]


def test_windows_must_advance():
    with pytest.raises(ConfigurationError, match="do not advance"):
        plan_chunks(100, HOP, 20, 18)
