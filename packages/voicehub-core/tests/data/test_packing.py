"""Samples that share rows: nothing is lost, and no row is over the capacity."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voicehub.data.packing import pack_lengths


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 40))
def test_packing_loses_nothing_and_keeps_the_capacity(lengths, capacity):
    rows = pack_lengths(lengths, capacity)
    assert sorted(item for row in rows for item in row) == list(range(len(lengths)))
    for row in rows:
        assert sum(lengths[item] for item in row) <= capacity or len(row) == 1


def test_the_longest_come_first_and_gaps_are_filled():
    assert pack_lengths([2, 7, 3, 12, 3], 10) == [[3], [1, 2], [4, 0]]
