"""Ranks that ask for something, or fail, alone; a module, since it is imported there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rank_tasks import make, result
from recipes import Frames

from voicehub.trainer.callbacks import EVENTS, TrainerCallback


class OnOneRank(TrainerCallback):
    """Does something in one event on one rank: asks for something, by its flag, or raises."""

    def __init__(self, event: str, rank: int, what: str, at: int = 1) -> None:
        self.what, self.rank, self.at, self.calls = what, rank, at, 0
        assert event in EVENTS
        setattr(self, event, self._act)

    def _act(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.calls += 1
        if self.rank != int(os.environ.get("RANK", "0")) or self.calls != self.at:
            return
        if self.what == "error":
            raise LookupError("the callback is broken")
        setattr(control, self.what, True)


class Doings(TrainerCallback):
    """Notes what is done, and after which update."""

    def __init__(self) -> None:
        self.did: list[tuple[str, int]] = []

    def on_evaluate(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.did.append(("evaluate", state.global_step))

    def on_save(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.did.append(("save", state.global_step))


def asked(
    directory: Path, cases: list[dict[str, Any]], run: dict[str, Any]
) -> list[dict[str, Any]]:
    """Train once for each case and return the ``result`` of each, and what it did."""
    found = []
    for number, case in enumerate(cases):
        doings = Doings()
        options = {"callbacks": [OnOneRank(**case), doings], "eval_dataset": Frames(3, seed=5)}
        trainer = make(directory=directory / str(number), options=options, **run)
        trainer.train()
        found.append({**result(trainer), "did": doings.did})
    return found
