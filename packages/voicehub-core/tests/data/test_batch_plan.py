"""Plans are pure functions, partition the data, respect their caps, and deal evenly."""

from __future__ import annotations

import gc
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicehub.data.batch_cost import batch_cost
from voicehub.data.plan import (
    BatchPlan,
    DurationBucketedPlan,
    FixedSizePlan,
    StreamPlan,
    deal,
    permutation,
    without_collections,
)
from voicehub.errors import ConfigurationError, DataError

CAP = 30.0
durations = st.lists(
    st.floats(min_value=0.0, max_value=CAP, allow_nan=False), min_size=1, max_size=80
)


@given(durations, st.integers(1, 12), st.integers(1, 9), st.integers(0, 5), st.booleans())
def test_bucketed_batches_never_exceed_their_caps_and_hold_every_item_once(
    lengths, most, buckets, epoch, shuffle
):
    plan = DurationBucketedPlan(lengths, CAP, most, seed=3, num_buckets=buckets, shuffle=shuffle)
    batches = plan.batches(epoch)
    for batch in batches:
        assert 1 <= len(batch) <= most
        assert len(batch) * max(lengths[i] for i in batch) <= CAP
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert plan.num_batches(epoch) == len(batches)


@given(durations, st.integers(0, 2**40), st.integers(0, 5))
def test_a_bucketed_plan_is_a_function_of_lengths_seed_and_epoch(lengths, seed, epoch):
    plan = DurationBucketedPlan(lengths, CAP, 4, seed)
    plan.batches(epoch + 1)  # what was asked before leaves no trace
    np.random.rand()  # nor do global generators
    assert plan.batches(epoch) == DurationBucketedPlan(np.array(lengths), CAP, 4, seed).batches(
        epoch
    )


@given(st.integers(1, 60), st.integers(1, 9), st.integers(0, 4), st.booleans(), st.booleans())
def test_fixed_batches_hold_every_item_once(num_items, size, epoch, shuffle, drop_last):
    if drop_last and num_items < size:
        with pytest.raises(ConfigurationError, match="leaves no batch"):
            FixedSizePlan(num_items, size, drop_last=True)
        return
    plan = FixedSizePlan(num_items, size, seed=1, shuffle=shuffle, drop_last=drop_last)
    batches = plan.batches(epoch)
    items = [i for batch in batches for i in batch]
    assert len(set(items)) == len(items)
    assert len(items) == (num_items // size * size if drop_last else num_items)
    assert all(len(batch) == size for batch in batches[:-1])
    assert plan.num_batches(epoch) == len(batches)
    assert plan.batches(epoch) == FixedSizePlan(
        num_items, size, seed=1, shuffle=shuffle, drop_last=drop_last
    ).batches(epoch)


def test_orders_never_change_between_versions():
    assert FixedSizePlan(8, 3, seed=1).batches(0) == [[0, 4, 2], [6, 3, 7], [5, 1]]
    plan = DurationBucketedPlan([5.0, 1.0, 3.0, 2.0, 4.0, 6.0], 12.0, 3, seed=1, num_buckets=2)
    assert plan.batches(0) == [[4, 0], [5], [3, 1, 2]]


def test_epochs_and_seeds_differ_only_when_shuffled():
    assert FixedSizePlan(50, 5, 1).batches(0) != FixedSizePlan(50, 5, 1).batches(1)
    assert FixedSizePlan(50, 5, 1).batches(0) != FixedSizePlan(50, 5, 2).batches(0)
    still = FixedSizePlan(50, 5, 1, shuffle=False)
    assert still.batches(0) == still.batches(1)
    assert still.batches(0)[0] == [0, 1, 2, 3, 4]


def test_bucketing_saves_padding_and_still_mixes_batches():
    lengths = np.random.Generator(np.random.PCG64(0)).gamma(2.0, 3.0, 600).clip(0.5, 20).tolist()

    def waste(plan):
        padded = sum(len(b) * max(lengths[i] for i in b) for b in plan.batches(0))
        return 1 - sum(lengths) / padded

    bucketed = DurationBucketedPlan(lengths, 120.0, None, seed=0, num_buckets=20)
    assert waste(bucketed) < 0.5 * waste(FixedSizePlan(600, 10, seed=0))
    first, second = ({frozenset(b) for b in bucketed.batches(e)} for e in (0, 1))
    assert len(first & second) < len(first) / 4


def drawn(count, sigma=0.5):
    draws = np.random.Generator(np.random.PCG64(1)).standard_normal(count)
    return np.exp(2.39 + sigma * draws).clip(1.0, 35.0)


def padding(plan, lengths, epoch=0):
    padded = sum(len(b) * max(lengths[i] for i in b) for b in plan.batches(epoch))
    return 1.0 - float(np.sum(lengths)) / padded


def test_the_number_of_groups_grows_with_the_data_and_ends_at_a_hundred():
    few, some, many = (DurationBucketedPlan(drawn(n), 200.0) for n in (1000, 4000, 20_000))
    assert (few.num_buckets, some.num_buckets, many.num_buckets) == (16, 30, 100)
    assert DurationBucketedPlan(drawn(4000), 200.0, 4).num_buckets == 100  # 1,000 batches
    given_number = DurationBucketedPlan(drawn(1000), 200.0, num_buckets=16)
    assert few.batches(0) == given_number.batches(0)
    assert few.fingerprint() == given_number.fingerprint()


@pytest.mark.parametrize("sigma", [0.31, 0.5, 0.7])
def test_chosen_limits_pad_less_than_groups_of_equal_count(sigma):
    lengths = drawn(12_000, sigma)
    chosen = DurationBucketedPlan(lengths, 200.0, seed=1)
    equal = DurationBucketedPlan(lengths, 200.0, seed=1, num_buckets=chosen.num_buckets)
    assert padding(chosen, lengths) < 0.93 * padding(equal, lengths) < 0.02
    assert chosen.fingerprint() != equal.fingerprint()
    first, second = ({frozenset(b) for b in chosen.batches(e)} for e in (0, 1))
    assert len(first & second) < len(first) / 100
    still = DurationBucketedPlan(lengths, 200.0, shuffle=False)
    assert "limits" not in still.fingerprint()


@pytest.mark.parametrize(
    "lengths",
    [
        np.full(3000, 2.0),
        np.r_[np.full(2999, 1.0), 20.0],
        np.r_[np.full(1500, 1.0), np.full(1500, 19.0)],
        np.r_[0.0, np.linspace(1.0, 20.0, 2999)],
        np.array([1.0, np.nextafter(1.0, 2.0)] * 1500),
    ],
)
def test_chosen_limits_hold_every_item_once_whatever_the_durations(lengths):
    plan = DurationBucketedPlan(lengths, 20.0, 12)
    assert plan.num_buckets > 16
    batches = plan.batches(0)
    assert sorted(i for batch in batches for i in batch) == list(range(3000))
    assert all(len(b) <= 12 and len(b) * lengths[b].max() <= 20.0 for b in batches)
    assert batches != plan.batches(1)


def test_groups_of_equal_count_differ_by_one_at_most():
    lengths = np.arange(1.0, 24.0)
    plan = DurationBucketedPlan(lengths, 100.0, num_buckets=5)
    parts = np.split(lengths, plan._limits(lengths))
    expected = np.array_split(lengths, 5)
    assert [p.tolist() for p in parts] == [p.tolist() for p in expected]


@given(durations, st.integers(1, 9), st.integers(1, 40), st.integers(0, 5))
def test_batches_of_an_update_are_the_same_batches_in_groups(lengths, most, together, epoch):
    plan = DurationBucketedPlan(lengths, CAP, most, seed=3)
    grouped = plan.for_updates_of(together)
    assert sorted(map(sorted, grouped.batches(epoch))) == sorted(map(sorted, plan.batches(epoch)))
    same = DurationBucketedPlan(lengths, CAP, most, seed=3, together=together)
    assert grouped.batches(epoch) == same.batches(epoch)
    assert grouped.fingerprint() == same.fingerprint()
    if together == 1:
        assert grouped.batches(epoch) == plan.batches(epoch)


@pytest.mark.parametrize("together", [2, 4, 24])
def test_batches_of_a_group_cost_nearly_the_same(together):
    lengths = np.random.Generator(np.random.PCG64(0)).gamma(2.0, 3.0, 4000).clip(0.5, 20).tolist()
    size = min(together, 12)

    def share_lost(plan):
        costs = [batch_cost([lengths[i] for i in b]) for b in plan.batches(0)]
        groups = np.array(costs[: len(costs) // size * size]).reshape(-1, size)
        return groups.max(1).mean() / groups.mean() - 1, groups.mean(1)

    plan = DurationBucketedPlan(lengths, 120.0, 32, seed=0)
    lost, costs = share_lost(plan.for_updates_of(together))
    assert lost < 0.03 < 0.06 < share_lost(plan)[0]
    assert abs(np.corrcoef(costs, np.arange(len(costs)))[0, 1]) < 0.5  # in no order of length
    assert plan.fingerprint() != plan.for_updates_of(together).fingerprint()


def test_a_batch_of_many_samples_costs_more_than_one_of_few_as_long():
    """By padded seconds alone each pair would have one of 40 samples and one of 10."""
    lengths = [1.0] * 40 + [4.0] * 10 + [1.002] * 40 + [4.004] * 10
    filled = [[*range(40)], [*range(40, 50)], [*range(50, 90)], [*range(90, 100)]]
    plan = DurationBucketedPlan(lengths, 41.0, together=2)
    order = plan._in_groups([0, 1, 2, 3], filled, epoch=0)
    assert sorted([order[:2], order[2:]]) == [[0, 2], [1, 3]]


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 5), st.integers(0, 3))
def test_dealing_partitions_and_keeps_the_global_batch(num_items, world_size, size, epoch):
    batches = FixedSizePlan(num_items, size, seed=2).batches(epoch)
    dealt = [deal(batches, rank, world_size) for rank in range(world_size)]
    assert sorted(b for part in dealt for b in part) == sorted(batches)
    # One process with `world_size` accumulation steps forms the same global batches.
    for step in range(0, len(batches), world_size):
        together = [part[step // world_size] for part in dealt if step // world_size < len(part)]
        assert together == batches[step : step + world_size]
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@pytest.mark.parametrize(("rank", "world_size"), [(-1, 2), (2, 2), (0, 0)])
def test_dealing_to_a_rank_that_does_not_exist_is_refused(rank, world_size):
    with pytest.raises(ConfigurationError, match="rank"):
        deal([[0]], rank, world_size)


def test_samples_over_the_cap_are_named_by_id_and_by_row():
    lengths = [1.0, 31.0, 2.0, 40.0]
    with pytest.raises(DataError, match=r"2 of 4 .*'b' \(31 s\), id 'd' \(40 s\)"):
        DurationBucketedPlan(lengths, CAP, 4, ids=["a", "b", "c", "d"])
    with pytest.raises(DataError, match=r"row 1 \(31 s\), row 3"):
        DurationBucketedPlan(lengths, CAP, 4)
    with pytest.raises(DataError, match="and 15 more"):
        DurationBucketedPlan([99.0] * 25, CAP, 4)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_durations_that_are_no_durations_are_named(bad):
    with pytest.raises(DataError, match="row 1"):
        DurationBucketedPlan([1.0, bad], CAP, 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedSizePlan(0, 4),
        lambda: FixedSizePlan(4, 0),
        lambda: DurationBucketedPlan([], CAP, 4),
        lambda: DurationBucketedPlan([1.0], 0.0, 4),
        lambda: DurationBucketedPlan([1.0], float("nan"), 4),
        lambda: DurationBucketedPlan([1.0], CAP, 0),
        lambda: DurationBucketedPlan([1.0], CAP, 4, num_buckets=0),
        lambda: DurationBucketedPlan([1.0], CAP, 4, ids=["a", "b"]),
        lambda: StreamPlan(0),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(ConfigurationError):
        make()


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 8},
        {"lengths": [1.0, 2.5]},
        {"max_padded_seconds": 9.0},
        {"max_batch_size": 3},
        {"num_buckets": 2},
        {"shuffle": False},
    ],
)
def test_fingerprints_tell_plans_apart(change):
    settings = {
        "lengths": [1.0, 2.0],
        "max_padded_seconds": 8.0,
        "max_batch_size": 2,
        "seed": 7,
        "num_buckets": 1,
        "shuffle": True,
    }

    def fingerprint(values):
        values = dict(values)
        return DurationBucketedPlan(values.pop("lengths"), **values).fingerprint()

    plain = fingerprint(settings)
    assert json.loads(json.dumps(plain)) == plain
    assert fingerprint(settings) == plain
    assert fingerprint({**settings, **change}) != plain


def test_all_plans_satisfy_the_protocol():
    plans = [FixedSizePlan(3, 1), DurationBucketedPlan([1.0], CAP, 1), StreamPlan(2)]
    assert all(isinstance(plan, BatchPlan) for plan in plans)
    kinds = {plan.fingerprint()["kind"] for plan in plans}
    assert len(kinds) == 3


def test_a_stream_says_that_its_length_is_unknown():
    with pytest.raises(ConfigurationError, match="max_steps"):
        StreamPlan(2).num_batches(0)
    with pytest.raises(ConfigurationError, match="iterable"):
        StreamPlan(2).batches(0)


def test_permutations_are_uniform():
    """Chi-square over the 24 orders of four items; the draws are fixed, so it cannot flake."""
    counts: dict[tuple[int, ...], int] = {}
    for number in range(4800):
        order = tuple(permutation(4, "uniform", number).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    chi_square = sum((count - 200) ** 2 / 200 for count in counts.values())
    assert chi_square < 44.2  # the 99.5 % point of 23 degrees of freedom


@pytest.mark.parametrize("enabled", [True, False])
def test_making_lists_leaves_the_garbage_collector_as_it_was(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(KeyError), without_collections():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
