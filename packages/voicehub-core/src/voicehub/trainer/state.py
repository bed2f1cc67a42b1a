"""Where a run stands (``TrainerState``) and what it should do next (``TrainerControl``)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass
class TrainerState:
    """Position and history of a run, as JSON values; part of every checkpoint.

    ``train_epoch`` and ``train_batch_cursor`` are the position in the data: the epoch and the
    number of its batches already consumed, by all processes together. ``epoch`` is the same as a
    fraction, for display.
    """

    epoch: float = 0.0
    global_step: int = 0
    max_steps: int = 0
    num_train_epochs: float = 0.0
    train_epoch: int = 0
    train_batch_cursor: int = 0
    skipped_steps: int = 0
    nonfinite_in_a_row: int = 0
    loss_total: float = 0.0
    last_log_step: int = 0
    last_evaluation_step: int = 0
    log_history: list[dict[str, Any]] = field(default_factory=list)
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None  # a name inside the run directory, never a path
    # Name and value of those with the best evaluations, the best one first.
    best_checkpoints: list[tuple[str, float]] = field(default_factory=list)
    is_world_process_zero: bool = True
    is_local_process_zero: bool = True

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainerState:
        """Rebuild from ``to_dict``; fields of a later version are an error, not dropped."""
        best = [(name, value) for name, value in values.get("best_checkpoints", ())]
        return cls(**{**values, "best_checkpoints": best})


@dataclass
class TrainerControl:
    """Decisions that callbacks may change; read and reset by the loop after each event."""

    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_save: bool = False
    should_evaluate: bool = False
    should_log: bool = False
