"""Ranks that ask for something, or fail, alone; a module, since it is imported there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rank_tasks import make, result
from recipes import Frames

from voicehub.trainer.callbacks import EVENTS, TrainerCallback


class OnOneRank(TrainerCallback):
    """Does something in one event on one rank: asks to stop, or raises."""

    def __init__(self, event: str, rank: int, what: str, at: int = 1) -> None:
        self.what, self.rank, self.at, self.calls = what, rank, at, 0
        assert event in EVENTS
        setattr(self, event, self._act)

    def _act(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.calls += 1
        if self.rank != int(os.environ.get("RANK", "0")) or self.calls != self.at:
            return
        if self.what == "stop":
            control.should_training_stop = True
        else:
            raise LookupError("the callback is broken")


def asked(
    directory: Path, cases: list[dict[str, Any]], run: dict[str, Any]
) -> list[dict[str, Any]]:
    """Train once for each case and return the ``result`` of each."""
    found = []
    for number, case in enumerate(cases):
        options = {"callbacks": [OnOneRank(**case)], "eval_dataset": Frames(3, seed=5)}
        trainer = make(directory=directory / str(number), options=options, **run)
        trainer.train()
        found.append(result(trainer))
    return found
