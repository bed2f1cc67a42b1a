"""Padding and order of batches on durations like LibriSpeech's, with fewer of them."""

from __future__ import annotations

import importlib.util

import batch_plan
import numpy as np
import order_tests
import pytest

ITEMS, EPOCHS = 4000, 40


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    return batch_plan.durations(ITEMS)[0]


def test_durations_are_those_that_are_stated(lengths: np.ndarray) -> None:
    assert lengths.mean() == pytest.approx(batch_plan.MEAN, rel=1e-6)
    assert lengths.min() >= batch_plan.SHORTEST and lengths.max() == batch_plan.LONGEST
    inside = np.log(lengths[(lengths > 1.0) & (lengths < 35.0)])
    assert inside.std() == pytest.approx(batch_plan.SIGMA, rel=0.05)


def test_our_batches_pad_little_keep_the_cap_and_come_in_a_random_order(
    lengths: np.ndarray,
) -> None:
    plan = batch_plan.ours(lengths)
    batches = plan(0)
    assert batch_plan.waste(batches, lengths) <= 0.04  # 30 groups; all of LibriSpeech takes 100
    assert max(batch_plan.padded(batch, lengths) for batch in batches) <= batch_plan.CAP
    found = batch_plan.order_of(plan, lengths, EPOCHS)
    assert set(found) == set(order_tests.TESTS)
    assert min(found.values()) > batch_plan.LEVEL


def test_an_order_by_length_is_found_out(lengths: np.ndarray) -> None:
    pytest.importorskip("transformers")
    grouped = batch_plan.length_grouped(lengths, 5)
    assert max(batch_plan.padded(batch, lengths) for batch in grouped(0)) <= batch_plan.CAP
    assert min(batch_plan.order_of(grouped, lengths, 10).values()) < 1e-6


@pytest.mark.skipif(importlib.util.find_spec("lhotse") is None, reason="`nox -s bench` installs it")
def test_lhotse_is_given_the_same_utterances(lengths: np.ndarray) -> None:
    few = lengths[:1500]
    plan = batch_plan.lhotse_buckets(few, 10)
    assert 0.0 < batch_plan.waste(plan(0), few) < 0.2
    assert plan(0) != plan(1)


def test_batches_that_lose_an_utterance_are_refused() -> None:
    few = np.array([1.0, 2.0, 3.0])
    assert batch_plan.waste([[0, 1], [2]], few) == pytest.approx(1 / 7)
    with pytest.raises(ValueError, match="not each once"):
        batch_plan.waste([[0, 1], [1]], few)


def test_what_is_random_passes_and_what_is_not_fails() -> None:
    draw = np.random.Generator(np.random.PCG64(0))
    values = draw.lognormal(2.4, 0.5, 300)
    random = [draw.permutation(values) for _ in range(EPOCHS)]
    assert min(order_tests.verdicts(random).values()) > 0.05
    rising = [values[np.argsort(values + draw.normal(0, 20, 300))] for _ in range(EPOCHS)]
    assert order_tests.verdicts(rising)["rank correlation"] < 1e-6
    swapped = []
    for order in random:  # above and below the median in turn
        high, low = np.sort(order)[150:], np.sort(order)[:150]
        pairs = np.stack([draw.permutation(high), draw.permutation(low)], 1)
        swapped.append(pairs.reshape(-1))
    assert order_tests.verdicts(swapped)["runs"] < 1e-6
    even = []
    for order in random:  # every tenth has exactly its share of the longest: too regular
        parts = [draw.permutation(part) for part in np.array_split(np.sort(order), 30)]
        even.append(np.stack(parts).T.reshape(-1))
    assert order_tests.verdicts(even)["places"] < 1e-6


def test_tails_are_those_of_the_tables() -> None:
    assert order_tests._chi_square_tail(21.666, 9) == pytest.approx(0.01, rel=1e-3)
    assert order_tests._chi_square_tail(16.919, 9) == pytest.approx(0.05, rel=1e-3)
    assert order_tests._two_sided(1.959964) == pytest.approx(0.05, rel=1e-5)
    # The table of Kolmogorov and Smirnov: 0.2101 at 5 % for 40 values.
    shifted = (np.arange(40) + 0.5) / 40 * (1 - 0.2101 + 0.0125)
    assert order_tests.uniform(shifted) == pytest.approx(0.05, rel=0.1)
