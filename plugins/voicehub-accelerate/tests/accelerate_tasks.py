"""What the tests run on every rank; a module, since it is imported there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rank_tasks
from accelerate.state import AcceleratorState, GradientState, PartialState
from voicehub_accelerate.strategy import AccelerateStrategy

from voicehub.errors import VoiceHubError
from voicehub.trainer.arguments import TrainingArguments


def forget_accelerate() -> None:
    """Let the next strategy of this process set Accelerate up in another way."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def train(directory: Path, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``rank_tasks.train`` of this strategy, with who this process is."""
    found = rank_tasks.train(directory, runs)
    state = PartialState()
    return [{**one, "rank": (state.process_index, state.num_processes)} for one in found]


def agree() -> dict[str, Any]:
    """Joint decisions, and a failure of rank 0 in what it does for all."""
    strategy = AccelerateStrategy(TrainingArguments(use_cpu=True, strategy="accelerate"))
    failures = []
    try:
        strategy.on_primary(_fails, what="the cache")
    except (VoiceHubError, ZeroDivisionError) as error:
        failures.append(f"{type(error).__name__}: {error}")
    try:
        with strategy.primary_first("the data"):
            _fails()
    except (VoiceHubError, ZeroDivisionError) as error:
        failures.append(f"{type(error).__name__}: {error}")
    return {
        "any": [strategy.any_rank(strategy.rank == 1), strategy.any_rank(False)],
        "sum": strategy.reduce_sum(0.1 * (strategy.rank + 1)),
        "rows": strategy.gather_for_metrics([f"{strategy.rank}a", f"{strategy.rank}b"]),
        "primary": strategy.on_primary(lambda: {"rank": strategy.rank}),
        "failures": failures,
    }


def _fails() -> int:
    return 1 // 0
