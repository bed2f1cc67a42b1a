"""Plans over pieces and classes: a hard cap, everything once, chances by weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.data.plan import BatchPlan, deal
from voicehub.errors import ConfigurationError, DataError
from voicehub_data.samplers import ClassWeightedPlan, RandomChunkPlan, class_draws


def pieces(plan, durations, epoch):
    """(samples, longest piece) of every batch, by what the dataset would be told."""
    draw, found = 0, []
    for batch in plan.batches(epoch):
        lengths = [
            min(durations[item], plan.chunk_seconds_of(epoch, draw + i))
            for i, item in enumerate(batch)
        ]
        draw += len(batch)
        found.append((batch, max(lengths)))
    return found


@settings(max_examples=60, deadline=None)
@given(
    durations=st.lists(st.floats(0.05, 40.0), min_size=1, max_size=60),
    low=st.floats(0.1, 4.0),
    more=st.floats(0.0, 4.0),
    cap=st.floats(8.0, 60.0),
    most=st.integers(1, 20),
    seed=st.integers(0, 3),
)
def test_the_cap_is_hard_and_every_recording_comes_once(durations, low, more, cap, most, seed):
    plan = RandomChunkPlan(durations, (low, low + more), cap, most, seed=seed)
    for epoch in (0, 1):
        found = pieces(plan, durations, epoch)
        assert len(found) == plan.num_batches(epoch)
        assert all(len(batch) * longest <= cap + 1e-6 for batch, longest in found)
        assert all(len(batch) <= most for batch, _ in found)
        assert sorted(i for batch, _ in found for i in batch) == list(range(len(durations)))


def test_a_cap_that_divides_evenly_is_used_in_full():
    plan = RandomChunkPlan([5.0] * 600, (0.1, 0.1), 60.0, 1000)
    assert [len(batch) for batch in plan.batches(0)] == [600]


def test_one_length_a_batch_and_another_in_the_next():
    plan = RandomChunkPlan([9.0] * 40, (2.0, 4.0), 12.0, 8, seed=1)
    assert isinstance(plan, BatchPlan)
    draw, lengths = 0, []
    for batch in plan.batches(3):
        own = {plan.chunk_seconds_of(3, draw + i) for i in range(len(batch))}
        assert len(own) == 1
        lengths += own
        draw += len(batch)
    assert len(set(lengths)) == len(lengths) and all(2 <= x <= 4 for x in lengths)


def test_an_epoch_is_a_function_of_seed_and_epoch():
    make = lambda seed: RandomChunkPlan([1.0] * 50, (0.5, 0.8), 8.0, 8, seed=seed)  # noqa: E731
    one, two = make(1), make(1)
    two.batches(5)
    assert one.batches(2) == two.batches(2)
    assert one.batches(2) != one.batches(3) and one.batches(2) != make(2).batches(2)
    assert one.fingerprint() == two.fingerprint() != make(2).fingerprint()


def test_ranks_see_disjoint_parts():
    plan = RandomChunkPlan([1.0] * 30, (0.5, 0.5), 2.0, 4)
    parts = [{i for b in deal(plan.batches(0), rank, 2) for i in b} for rank in (0, 1)]
    assert not parts[0] & parts[1] and len(parts[0] | parts[1]) == 30


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_classes_are_drawn_in_proportion(exponent):
    counts = np.array([400, 100, 25, 0, 9])
    draws = 20_000
    found = np.bincount(class_draws(counts, exponent, draws, "test", 1), minlength=5)
    weights = np.where(counts > 0, counts.astype(float) ** exponent, 0)
    expected = weights / weights.sum() * draws
    present = expected > 0
    assert found[~present].sum() == 0
    chi_square = ((found - expected)[present] ** 2 / expected[present]).sum()
    assert chi_square < 11.345  # 99 % quantile with 3 degrees of freedom


def test_weighted_epochs_take_every_sample_of_a_class_before_one_again():
    labels = [0] * 30 + [1] * 4 + [2] * 6
    plan = ClassWeightedPlan([1.0] * 40, labels, (0.5, 0.5), 4.0, 8, exponent=0.0, seed=2)
    order = plan.order(0)
    assert len(order) == 40
    for label in (0, 1, 2):
        taken = [i for i in order if labels[i] == label]
        members = labels.count(label)
        for start in range(0, len(taken), members):
            lap = taken[start : start + members]
            assert len(set(lap)) == len(lap)
    found = pieces(plan, [1.0] * 40, 0)
    assert all(len(batch) * longest <= 4.0 for batch, longest in found)
    assert plan.order(0) == order != plan.order(1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1.0], (2.0, 1.0), 9.0, 4), ConfigurationError, "shortest <= longest"),
        (([1.0], (1.0, 10.0), 9.0, 4), ConfigurationError, "longest <= cap"),
        (([], (1.0, 1.0), 9.0, 4), ConfigurationError, "0 durations"),
        (([1.0, float("nan")], (1.0, 1.0), 9.0, 4), DataError, "not a positive number"),
    ],
)
def test_impossible_settings_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        RandomChunkPlan(*arguments)


def test_labels_and_durations_must_agree():
    with pytest.raises(ConfigurationError, match="2 labels were given for 1 durations"):
        ClassWeightedPlan([1.0], [0, 1], (0.5, 0.5), 4.0, 8)
