"""Sets in the proportion that was asked for, whatever the epoch."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.data.plan import BatchPlan, deal
from voicehub.errors import ConfigurationError
from voicehub_flow.store.global_batch import split_global_batch
from voicehub_flow.store.mixing import MixturePlan

SIZES, RATES = (900, 6400, 130), (5.0, 1.0, 2.5)


def test_the_first_ten_thousand_draws_have_the_mix_that_was_asked_for():
    plan = MixturePlan(SIZES, RATES, 64, seed=7)
    drawn = [i for epoch in (0, 1) for batch in plan.batches(epoch) for i in batch][:10_000]
    wanted = [rate * size for rate, size in zip(RATES, SIZES, strict=True)]
    ends = (SIZES[0], SIZES[0] + SIZES[1], sum(SIZES))
    counts = [
        sum(lower <= i < end for i in drawn)
        for lower, end in zip((0, *ends[:-1]), ends, strict=True)
    ]
    for count, share in zip(counts, wanted, strict=True):
        assert abs(count / len(drawn) - share / sum(wanted)) < 0.02


@given(
    sets=st.lists(st.tuples(st.integers(1, 40), st.floats(0.1, 6)), min_size=1, max_size=4),
    size=st.integers(1, 9),
    seed=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_every_clip_comes_as_often_as_its_set_says(sets, size, seed):
    sizes, rates = zip(*sets, strict=True)
    plan = MixturePlan(sizes, rates, size, seed)
    assert isinstance(plan, BatchPlan)
    batches = plan.batches(2)
    assert len(batches) == plan.num_batches(2)
    assert all(len(batch) == size for batch in batches[:-1])
    counts = Counter(index for batch in batches for index in batch)
    first = 0
    for number, (clips, rate) in enumerate(sets):
        own = [counts[first + clip] for clip in range(clips)]
        assert sum(own) == plan.counts[number] == max(1, round(rate * clips))
        assert max(own) - min(own) <= 1
        first += clips
    assert set(counts) <= set(range(first))


def test_an_epoch_is_a_function_of_seed_and_epoch_alone():
    plan = MixturePlan(SIZES, RATES, 10, seed=1)
    assert plan.batches(3) == MixturePlan(SIZES, RATES, 10, seed=1).batches(3)
    assert plan.batches(3) != plan.batches(4)
    assert plan.batches(3) != MixturePlan(SIZES, RATES, 10, seed=2).batches(3)
    assert plan.fingerprint() != MixturePlan(SIZES, (5.0, 1.0, 3.0), 10, seed=1).fingerprint()
    two = [i for rank in (0, 1) for batch in deal(plan.batches(0), rank, 2) for i in batch]
    assert Counter(two) == Counter(i for batch in plan.batches(0) for i in batch)


def test_which_clips_a_broken_rate_repeats_differs_from_epoch_to_epoch():
    plan = MixturePlan((40,), (1.5,), 60, seed=0)
    twice = [
        {i for i, count in Counter(plan.batches(epoch)[0]).items() if count == 2}
        for epoch in (0, 1)
    ]
    assert [len(names) for names in twice] == [20, 20]
    assert twice[0] != twice[1]


@pytest.mark.parametrize(
    ("sizes", "rates"), [((), ()), ((3,), (1.0, 2.0)), ((0,), (1.0,)), ((3,), (0.0,))]
)
def test_sets_that_make_no_sense_are_refused(sizes, rates):
    with pytest.raises(ConfigurationError):
        MixturePlan(sizes, rates, 4)


# -- the global batch ----------------------------------------------------------------------------


@given(st.integers(1, 600), st.integers(1, 16), st.integers(1, 80))
@settings(max_examples=200, deadline=None)
def test_a_global_batch_is_reached_exactly_or_refused(wanted, processes, most):
    if wanted % processes:
        with pytest.raises(ConfigurationError, match=f"shared by {processes} processes"):
            split_global_batch(wanted, processes, most)
        return
    split = split_global_batch(wanted, processes, most)
    assert split.per_device * split.accumulation * processes == wanted
    assert 1 <= split.per_device <= most


def test_published_batches_are_split_and_513_is_not_floored():
    assert split_global_batch(512, 2, 64) == (64, 4)
    assert split_global_batch(512, 8, 100) == (64, 1)
    assert split_global_batch(512, 1, 300) == (256, 2)
    with pytest.raises(ConfigurationError, match="take 512 or 520"):
        split_global_batch(513, 8, 64)
    with pytest.raises(ConfigurationError, match="take 8, or"):
        split_global_batch(4, 8, 64)
