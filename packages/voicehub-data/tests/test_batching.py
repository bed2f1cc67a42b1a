"""Plans from configuration."""

from __future__ import annotations

import pytest

from voicehub.data.plan import DurationBucketedPlan, FixedSizePlan
from voicehub.errors import DataError
from voicehub_data.batching import plan_from
from voicehub_data.config import BatchConfig

DURATIONS = [1.0, 2.5, 0.5, 3.0, 1.5, 2.0]


def test_cap():
    plan = plan_from(BatchConfig(max_padded_seconds=4, max_batch_size=2), DURATIONS, seed=1)
    assert isinstance(plan, DurationBucketedPlan)
    for epoch in range(3):
        batches = plan.batches(epoch)
        assert sorted(i for batch in batches for i in batch) == list(range(6))
        for batch in batches:
            assert len(batch) <= 2
            assert len(batch) * max(DURATIONS[i] for i in batch) <= 4


def test_size_and_default():
    plan = plan_from(BatchConfig(batch_size=4, drop_last=True), DURATIONS, seed=1)
    assert isinstance(plan, FixedSizePlan)
    assert [len(batch) for batch in plan.batches(0)] == [4]
    assert [len(batch) for batch in plan_from(BatchConfig(), DURATIONS, seed=1).batches(0)] == [6]


def test_evaluation_keeps_the_order():
    plan = plan_from(BatchConfig(batch_size=4), DURATIONS, seed=1, shuffle=False)
    assert [list(batch) for batch in plan.batches(0)] == [[0, 1, 2, 3], [4, 5]]


def test_a_row_over_the_cap_is_named():
    with pytest.raises(DataError, match="long"):
        plan_from(
            BatchConfig(max_padded_seconds=2.7),
            DURATIONS,
            seed=1,
            ids=["a", "b", "c", "long", "e", "f"],
        )
