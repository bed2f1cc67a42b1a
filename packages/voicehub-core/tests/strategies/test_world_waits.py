"""What a rank says of itself while it waits for the others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import HashStore

from voicehub.strategies.failure_watch import FailureWatch
from voicehub.strategies.local_link import LateError
from voicehub.strategies.world import World


def _world(rank: int, store: HashStore) -> World:
    world = object.__new__(World)  # without process groups: nothing here is sent
    world.rank, world.size, world.limit = rank, 2, timedelta(seconds=1)
    world.watch = FailureWatch(store, rank, 2)
    return world


@pytest.mark.parametrize("patient", [False, True])
def test_a_rank_that_waits_in_a_callback_does_not_work(patient: bool) -> None:
    """Else two that wait for each other there would do so for hours."""
    world = _world(0, HashStore())
    said: list[str | None] = []

    def wait(limit: timedelta) -> str:
        said.append(world.watch.work)
        return "came"

    with world.at_work("callbacks of on_log"):
        assert world._wait(wait, patient) == "came"
        said.append(world.watch.work)
    assert said == [None, "callbacks of on_log"]


def test_a_wait_goes_on_only_while_another_rank_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicehub.strategies.world._BEATS", 0.0)
    store = HashStore()
    world = _world(0, store)
    beats = iter(["7 callbacks of on_save", "8"])

    def late(limit: timedelta) -> Any:
        store.set("voicehub/beat/1", next(beats))
        raise LateError("the connection to rank 1 timed out")

    with pytest.raises(LateError):
        world._wait(late, False)
    assert next(beats, None) is None  # it was waited for twice
