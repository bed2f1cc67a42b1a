"""Signs of life and first causes, over a store in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist

from voicehub.strategies.failure_watch import (
    FailureWatch,
    RankFailedError,
    RankFailure,
    WatchLimits,
)
from voicehub.strategies.timed_store import TimedStore

#: Silence that only what stands still keeps: on a busy machine a thread waits for its turn.
CALM = WatchLimits(beat=0.01, silence=120.0, grace=0.0)
QUICK = WatchLimits(beat=0.01, silence=0.6, grace=0.0)


class Watch(FailureWatch):
    """Keeps what would have ended the process."""

    def __init__(self, store: Any, rank: int, limits: WatchLimits = CALM) -> None:
        super().__init__(store, rank, 2, limits)
        self.ended = threading.Event()
        self.cause = ""

    def _end(self, cause: str, patience: int = 1) -> None:
        self.cause = cause
        self.ended.set()


@pytest.fixture
def store() -> Any:
    return dist.HashStore()


@pytest.fixture
def watches(store: Any) -> Iterator[list[Watch]]:
    found = [Watch(store, 0), Watch(store, 1)]
    yield found
    for watch in found:
        watch.stop()


def test_the_first_failure_stays(watches: list[Watch]) -> None:
    first, second = watches
    second.report(LookupError("the tape\nis torn"))
    first.report(ValueError("later"))
    expected = RankFailure(1, "LookupError", "the tape is torn")
    assert first.failure() == second.failure() == expected
    assert str(expected) == "Rank 1 failed first, with LookupError: the tape is torn"


def test_what_another_rank_failed_with_is_no_failure_of_this_one(watches: list[Watch]) -> None:
    watches[0].report(RankFailedError(RankFailure(1, "DataError", "gone")))
    assert watches[0].failure() is None


def test_a_recorded_failure_ends_every_rank(watches: list[Watch]) -> None:
    for watch in watches:
        watch.start()
    watches[1].report(LookupError("torn"))
    for watch in watches:
        assert watch.ended.wait(120)
        assert "LookupError: torn" in watch.cause


def test_a_rank_without_signs_of_life_is_found(store: Any) -> None:
    """As after SIGSTOP: the process is there, its threads are not."""
    watch = Watch(store, 0, QUICK)
    store.set("voicehub/beat/1", "5")
    watch.start()
    assert watch.ended.wait(120)
    assert watch.failure() == RankFailure(
        1, "SilentRank", "no sign of life for 1 s: stopped, or cut off"
    )
    watch.stop()


def test_a_rank_that_is_done_is_not_missed(store: Any) -> None:
    watch, done = Watch(store, 0, QUICK), Watch(store, 1)
    done.start()
    done.stop()
    watch.start()
    assert not watch.ended.wait(1.0)
    assert watch.failure() is None
    watch.stop()
    watch.wait_for_others(limit=10.0)


def test_limits_that_are_set_later_count(store: Any) -> None:
    watch = Watch(store, 0, WatchLimits(beat=0.01, silence=1e9, grace=0.0))
    store.set("voicehub/beat/1", "5")
    watch.start()
    watch.limits = QUICK
    assert watch.ended.wait(120)
    watch.stop()


def test_a_store_that_stands_still_with_its_process_is_not_waited_for() -> None:
    """Rank 0 keeps it where no launcher does, and may be stopped."""
    store = Silent()
    watch = FailureWatch(store, 1, 2, WatchLimits(silence=0.05))
    assert watch.others_work(0.0) is None
    assert watch.failure() is None
    watch.record(RankFailure(1, "RankStalledError", "late"))
    watch.stop()
    assert store.asked == ["get"]  # once is enough


def test_what_a_store_raises_is_raised() -> None:
    store = TimedStore(dist.HashStore(), lambda: 60.0)
    store.set("a", "1")
    assert store.get("a") == b"1"
    with pytest.raises(TypeError):
        store.set("a")


class Silent:
    """Gives no answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "clone":
            raise AttributeError(name)

        def ask(*given: Any) -> None:
            self.asked.append(name)
            threading.Event().wait()

        return ask
