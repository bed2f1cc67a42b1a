"""What an update is made of: micro-batches, and the window that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voicehub.trainer.agreement import SharedWindow


@dataclass(slots=True)
class MicroBatch:
    """One batch of the loader: model inputs apart from what describes them."""

    inputs: Any
    info: Mapping[str, Any]
    size: int
    phase: str | None = None  # the batch-level ``training_phase``, when the data names one


@dataclass(slots=True)
class Window:
    """The micro-batches of one update and where in the run they stand."""

    batches: Sequence[MicroBatch]
    step: int
    epoch: float
    shared: SharedWindow | None = None  # what all processes hold of it; None with one
