"""What an evaluation measures beside the loss: metrics over rows, and tasks of their own.

Rows are small per-sample results (``TrainingAdapter.evaluation_rows``); an accumulator takes them
batch by batch and computes metrics of a whole split from them. A task is for what is no loss and
no row: synthesising fixed sentences, scoring a list of trials, drawing alignments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from voicehub.adapters.base import TrainingAdapter


class MetricAccumulator(Protocol):
    """Metrics of one split, fed row by row; made anew for every evaluation of the split."""

    def add(self, rows: Sequence[Any]) -> None:
        """Take the rows of one batch of all processes, in the order of the data."""

    def compute(self) -> Mapping[str, float]:
        """Return the metrics by name, without a prefix; called once, after the last batch."""


class KeptRows:
    """Keeps every row and computes the metrics over all of them at the end."""

    def __init__(self, metrics: Callable[[Sequence[Any]], Mapping[str, float]]) -> None:
        self._metrics = metrics
        self._rows: list[Any] = []

    def add(self, rows: Sequence[Any]) -> None:
        """Keep them."""
        self._rows.extend(rows)

    def compute(self) -> Mapping[str, float]:
        """Return the metrics over all rows."""
        return self._metrics(self._rows)


@dataclass(frozen=True)
class EvaluationContext:
    """What a task gets.

    Attributes:
        adapter: The recipe; ``adapter.model`` is the wrapper, ``adapter.module`` the graph. Both
            hold the weights that are evaluated, in eval mode, without gradients.
        strategy: How the run executes: ``rank``, ``world_size``, ``autocast_context()``,
            ``gather_for_metrics()``. Every process runs the task.
        device: Where the model is.
        step: Updates so far.
        weights: ``raw`` or ``ema``.
        prefix: What the names of metrics begin with: ``eval``, or ``eval_ema`` beside raw ones.
        wants_media: Whether anybody looks at audio and pictures: without, they need not be made.
        log_media: Hands ``{"name": Audio | Image | Text}`` to the reporters, as ``<prefix>/name``.
    """

    adapter: TrainingAdapter
    strategy: Any
    device: str
    step: int
    weights: str
    prefix: str
    wants_media: bool
    log_media: Callable[[Mapping[str, Any]], None]


class EvaluationTask(ABC):
    """Something measured or shown at every evaluation, after its splits, with the same weights.

    The random states of training are restored afterwards; seed what you draw, so that evaluations
    of two steps can be compared. An exception ends the evaluation and with it the run.
    """

    #: Said in errors and where tasks are listed.
    name: ClassVar[str] = ""

    @abstractmethod
    def run(self, context: EvaluationContext) -> Mapping[str, float]:
        """Return metrics by name, without a prefix; empty where there is only something to show.

        The values must be equal on all processes.
        """
