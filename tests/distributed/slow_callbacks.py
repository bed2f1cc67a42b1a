"""Callbacks that take on rank 0 as long as it takes; a module, since ranks import it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from rank_tasks import UNHURRIED, make, result
from recipes import Frames

from voicehub.strategies.distributed import DistributedStrategy
from voicehub.strategies.failure_watch import WatchLimits
from voicehub.strategies.local_link import SWITCH
from voicehub.strategies.world import joined
from voicehub.trainer.callbacks import TrainerCallback

_SHORT, _USUAL = timedelta(seconds=0.1), timedelta(seconds=UNHURRIED)
_DEADLINE = 120.0


class SlowOnRankZero(TrainerCallback):
    """At the first call of each event rank 0 stays until rank 1 has waited for it.

    That is: at a point without a limit, or longer than the limit, which rank 1 makes short once
    rank 0 is in the callback.
    """

    def __init__(self, folder: Path, events: list[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.left = folder, list(events)
        self.event = ""
        self.how: dict[str, str] = {}
        for event in events:
            setattr(self, event, lambda *given, event=event, **context: self.act(event))

    def act(self, event: str) -> None:
        """What both ranks do in the callback."""
        if event not in self.left:
            return
        self.left.remove(event)
        world = joined()
        assert world is not None
        if world.rank == 0:
            (self.folder / event).touch()
            _poll((self.folder / f"{event}-waited").exists, event)
        else:
            _poll((self.folder / event).exists, event)
            self.event, world.limit = event, _SHORT

    def waited(self, how: str) -> None:
        """Rank 1 has waited, and rank 0 may go on."""
        world = joined()
        if self.event and world is not None:
            world.limit = _USUAL
            self.how[self.event] = how
            (self.folder / f"{self.event}-waited").touch()
            self.event = ""


class _Warnings(logging.Handler):
    def __init__(self, slow: SlowOnRankZero) -> None:
        super().__init__()
        self.slow = slow

    def emit(self, record: logging.LogRecord) -> None:
        self.slow.waited(record.getMessage())


def with_slow_callbacks(
    directory: Path, events: list[str], run: dict[str, Any], link: bool
) -> dict[str, Any]:
    """Train; the ``result``, and how rank 1 waited in each event; the first task of a world."""
    if not link:
        os.environ[SWITCH] = "off"
    slow = SlowOnRankZero(directory / "events", events)
    handler, usual = _Warnings(slow), DistributedStrategy.barrier

    def barrier(strategy: DistributedStrategy) -> None:
        slow.waited("barrier")
        usual(strategy)

    logger = logging.getLogger("voicehub.strategies.world")
    logger.addHandler(handler)
    DistributedStrategy.barrier = barrier  # type: ignore[method-assign]
    try:
        options = {"callbacks": [slow], "eval_dataset": Frames(3, seed=5)}
        trainer = make(directory=directory, options=options, **run)
        world = joined()
        assert world is not None and (world.link is not None) is link
        world.watch.limits = WatchLimits(beat=0.1, silence=600.0, grace=600.0)
        trainer.train()
    finally:
        os.environ.pop(SWITCH, None)
        logger.removeHandler(handler)
        DistributedStrategy.barrier = usual  # type: ignore[method-assign]
    return {**result(trainer), "how": slow.how}


def _poll(ready: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _DEADLINE
    while not ready():
        assert time.monotonic() < until, f"rank 1 has not waited: {what}"
        time.sleep(0.01)
