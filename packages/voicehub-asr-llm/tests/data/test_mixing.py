"""Mixes: shares in every stretch, all rows before any again, the same for the same seed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError, DataError
from voicehub_asr_llm.data.mixing import MixPlan
from voicehub_data.config import BatchConfig

SIZES = [50, 3000, 700]
DRAWS = [2000, 12000, 6000]


def ranges(sizes):
    ends = np.cumsum(sizes).tolist()
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def plan(sizes=SIZES, draws=DRAWS, seed=3, durations=None, **batches):
    settings = BatchConfig.load(batches or {"batch_size": 16})
    if durations is None:
        durations = [1.0] * sum(sizes)
    return MixPlan(ranges(sizes), draws, durations, settings, seed=seed)


def shares(samples):
    source = np.searchsorted(np.cumsum(SIZES), samples, side="right")
    return np.bincount(source, minlength=len(SIZES)) / len(samples)


def durations():
    """Sources of different lengths: buckets would take them apart."""
    generator = np.random.default_rng(0)
    return np.concatenate(
        [
            generator.uniform(low, low + 4, size)
            for low, size in zip((0.5, 3.0, 8.0), SIZES, strict=True)
        ]
    ).tolist()


@pytest.mark.parametrize(
    "batches", [{"batch_size": 16}, {"max_padded_seconds": 120.0, "max_batch_size": 64}]
)
def test_the_mix_of_ten_thousand_draws_is_the_requested_one(batches):
    wanted = np.array(DRAWS) / sum(DRAWS)
    mixed = plan(durations=durations(), **batches)
    drawn = [sample for batch in mixed.batches(0) for sample in batch]
    assert len(drawn) == sum(DRAWS)
    for first in (0, 5000, 10000):
        assert np.abs(shares(drawn[first : first + 10000]) / wanted - 1).max() < 0.02
    assert np.abs(shares(drawn) / wanted - 1).max() < 1e-12


def test_by_number_even_a_hundred_draws_have_the_mix():
    drawn = plan().order(0)
    for first in range(0, 20000, 1000):
        counts = shares(drawn[first : first + 100]) * 100
        assert np.abs(counts - np.array(DRAWS) / 200).max() <= 3


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    draws=st.lists(st.integers(1, 30), min_size=3, max_size=3),
    seed=st.integers(0, 2**32),
)
def test_every_row_is_taken_before_one_is_taken_again(sizes, draws, seed):
    draws = draws[: len(sizes)]
    mixed = plan(sizes, draws, seed, batch_size=4)
    taken = Counter()
    for epoch in range(4):
        order = mixed.order(epoch)
        for rows, count in zip(ranges(sizes), draws, strict=True):
            assert sum(sample in rows for sample in order) == count
        taken.update(order)
        for rows in ranges(sizes):
            counts = [taken[row] for row in rows]
            assert max(counts) - min(counts) <= 1


def test_a_capped_source_gives_others_in_the_next_epoch():
    mixed = plan([100], [40], batch_size=8)
    first, second = set(mixed.order(0)), set(mixed.order(1))
    assert len(first) == len(second) == 40
    assert not first & second


def test_a_function_of_the_seed_and_the_epoch():
    one, two, other = plan(), plan(), plan(seed=4)
    assert one.batches(1) == two.batches(1)
    assert one.batches(0) == two.batches(0)  # whatever was asked for before
    assert one.batches(0) != one.batches(1)
    assert one.batches(0) != other.batches(0)
    assert one.fingerprint() == two.fingerprint() != other.fingerprint()
    assert plan(draws=[2000, 12000, 6001]).fingerprint() != one.fingerprint()


def test_the_cap_holds_and_batches_are_of_like_lengths():
    lengths = durations()
    mixed = plan(durations=lengths, max_padded_seconds=120.0, max_batch_size=64)
    batches = mixed.batches(0)
    padded = [len(batch) * max(lengths[i] for i in batch) for batch in batches]
    assert max(padded) <= 120.0
    assert mixed.num_batches(0) == len(batches)
    real = sum(lengths[i] for batch in batches for i in batch)
    assert real / sum(padded) > 0.85


def test_drop_last_and_fixed_order():
    mixed = plan([5], [5], batch_size=2, drop_last=True, shuffle=False)
    assert mixed.batches(0) == [[0, 1], [2, 3]]
    assert mixed.batches(1) == [[0, 1], [2, 3]]
    with pytest.raises(ConfigurationError, match="drop_last leaves no batch"):
        plan([1], [1], batch_size=2, drop_last=True).batches(0)


def test_settings_that_make_no_mix():
    with pytest.raises(ConfigurationError, match="2 sources and 1 numbers"):
        MixPlan(ranges([1, 1]), [1], [1.0, 1.0], BatchConfig(), seed=0)
    with pytest.raises(ConfigurationError, match="source 1 has 0 rows"):
        MixPlan([range(1), range(0)], [1, 1], [1.0], BatchConfig(), seed=0)
    with pytest.raises(DataError, match="row 1"):
        plan([2], [1], durations=[1.0, 9.0], max_padded_seconds=5.0)
