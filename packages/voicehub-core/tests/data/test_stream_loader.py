"""Iterable datasets: known by count, replayed on resume, equal with and without a worker."""

from __future__ import annotations

import os
import random
import signal

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from voicehub.data.collate import default_data_collator
from voicehub.data.loader import DeadWorkerError, build_loader
from voicehub.data.plan import FixedSizePlan, StreamPlan
from voicehub.errors import ConfigurationError, DataError


class Stream(IterableDataset):
    """Shuffles through a buffer and adds noise, all from global generators."""

    def __init__(self, size=11, broken_at=None):
        self.size = size
        self.broken_at = broken_at
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = np.random.permutation(self.size)
        for number, index in enumerate(order.tolist()):
            if number == self.broken_at:
                raise OSError("broken shard")
            yield {"i": index, "x": torch.rand(2), "p": random.random(), "epoch": self.epoch}


def load(dataset, plan=None, **options):
    return list(
        build_loader(
            dataset,
            plan or StreamPlan(3, seed=4),
            epoch=2,
            collate_fn=default_data_collator,
            **options,
        )
    )


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("start", [0, 1, 3, 4])
def test_position_and_workers_change_nothing(workers, start, assert_equal, random_state):
    whole = load(Stream())
    assert [len(batch["i"]) for batch in whole] == [3, 3, 3, 2]
    assert sorted(torch.cat([batch["i"] for batch in whole]).tolist()) == list(range(11))
    assert all(batch["epoch"].eq(2).all() for batch in whole)
    before = random_state()
    assert_equal(load(Stream(), start_batch=start, num_workers=workers), whole[start:])
    assert random_state() == before


def test_ranks_take_turns(assert_equal):
    whole = load(Stream())
    assert_equal(load(Stream(), rank=1, world_size=2), whole[1::2])
    assert_equal(load(Stream(), rank=0, world_size=2, start_batch=2), whole[2::2])


def test_the_last_batch_may_be_dropped():
    assert len(load(Stream(), StreamPlan(3, seed=4, drop_last=True))) == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_an_item_that_cannot_be_read_is_named_by_position(workers):
    with pytest.raises(DataError, match=r"item 5 of the stream.*OSError: broken shard"):
        load(Stream(broken_at=5), num_workers=workers)


def test_streams_and_plans_must_match():
    with pytest.raises(ConfigurationError, match="StreamPlan"):
        load(Stream(), FixedSizePlan(11, 3))
    with pytest.raises(ConfigurationError, match="StreamPlan"):
        load([1, 2, 3])


class Dying(IterableDataset):
    def __iter__(self):
        yield {"i": 0}
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_is_reported():
    with pytest.raises(DeadWorkerError, match="worker ended"):
        load(Dying(), num_workers=1)
