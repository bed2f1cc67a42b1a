"""Plans from configuration."""

from __future__ import annotations

import pytest

from voicehub.data.plan import DurationBucketedPlan, FixedSizePlan
from voicehub.errors import DataError
from voicehub.trainer.arguments import TrainingArguments
from voicehub_data.batching import evaluation_plan, plan_from, training_plan
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


def test_training_takes_the_size_of_the_trainer_where_none_is_given():
    training = TrainingArguments(output_dir="runs", per_device_train_batch_size=2, data_seed=5)
    ids = list("abcdef")
    plan = training_plan(BatchConfig(), training, DURATIONS, ids)
    same = plan_from(BatchConfig(batch_size=2), DURATIONS, seed=5, ids=ids)
    assert [list(b) for b in plan.batches(0)] == [list(b) for b in same.batches(0)]
    capped = BatchConfig(max_padded_seconds=4)
    assert isinstance(training_plan(capped, training, DURATIONS, ids), DurationBucketedPlan)
    with pytest.raises(DataError, match="long"):
        training_plan(
            BatchConfig(max_padded_seconds=2.7),
            training,
            DURATIONS,
            ["a", "b", "c", "long", "e", "f"],
        )


def test_evaluation_takes_rows_over_the_cap_alone():
    plan = evaluation_plan(DURATIONS, 2.7, list("abcdef"))
    batches = [list(batch) for batch in plan.batches(0)]
    assert [3] in batches, "three seconds are over the cap"
    assert sorted(i for batch in batches for i in batch) == list(range(6))
    assert batches == [list(batch) for batch in plan.batches(1)]
    single = evaluation_plan(DURATIONS, 100.0, list("abcdef"), max_batch_size=1)
    assert single.num_batches(0) == 6


def test_settings_that_batches_take_over():
    assert BatchConfig().homes("data.eval_size") == {
        "per_device_eval_batch_size": "data.eval_size",
        "dataloader_drop_last": "data.batches",
    }
    sized = BatchConfig(max_padded_seconds=4).homes("data.eval_size")
    assert sized["per_device_train_batch_size"] == "data.batches"
