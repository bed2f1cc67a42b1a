"""What a family builds from a run configuration for ``voicehub train``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from voicehub.models.results import PredictionRow

if TYPE_CHECKING:
    from voicehub.adapters.base import TrainingAdapter
    from voicehub.adapters.evaluation import EvaluationTask
    from voicehub.data.plan import BatchPlan


@dataclass(frozen=True)
class SplitReport:
    """What was kept of one split; ``kept`` plus everything dropped is ``total``.

    Attributes:
        split: Name, for example ``train``.
        total: Rows of the manifest.
        kept: Rows that are used.
        dropped: Rows left out, counted by reason.
        seconds: Audio of the kept rows.
        notes: Further facts worth showing before step 0.
    """

    split: str
    total: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FigureNote:
    """What a logged figure is, for the live panel and the report.

    Attributes:
        key: As logged, without ``loss/`` or ``eval_`` in front.
        name: For people.
        meaning: What it measures.
        band: What a healthy run does.
        brief: The band in a few characters, for the panel; empty where that cannot be said.
        decides: Whether it says how good the model is.
    """

    key: str
    name: str
    meaning: str
    band: str
    brief: str = ""
    decides: bool = False

    def is_of(self, logged: str) -> bool:
        """Whether the note is of a logged key."""
        return logged.removeprefix("loss/").removeprefix("eval_") == self.key


@dataclass
class FinalContext:
    """What a final step gets: a finished run, and what the steps before it have made.

    Attributes:
        model: The wrapper; its module holds the weights in question, in eval mode.
        weights: ``raw`` or ``ema``.
        manifest: What an artifact says of these weights.
        step: Updates of the run.
        directory: Of the run.
        samples: What was made of the prompts, as ``reporting.samples.SavedSample``.
        sheets: The same as ``reporting.samples.SampleSheet``, for the report.
    """

    model: Any
    weights: str
    manifest: Mapping[str, Any]
    step: int
    directory: Path
    samples: list[Any] = field(default_factory=list)
    sheets: list[Any] = field(default_factory=list)


class FinalStep(ABC):
    """Something done once the weights of a run are on disk: sampling, and metrics of samples.

    A step that fails is named in the summary and turns the exit code; the weights and what the
    other steps have made stay. Steps run one after the other with the weights that
    ``eval_weights`` names, on the first process (on all of them where each holds a part of the
    weights).
    """

    #: Said in the summary.
    name: ClassVar[str] = ""

    @abstractmethod
    def run(self, context: FinalContext) -> Mapping[str, float]:
        """Return metrics by name, without a prefix; empty where there are none."""


@dataclass
class Experiment:
    """Everything a run needs beyond its training arguments.

    Attributes:
        model: The model wrapper, lazy.
        train_dataset: Samples to train on.
        adapter: Its adapter; None lets the Trainer find it.
        eval_datasets: Evaluation sets by split name.
        data_collator: Batches samples; None takes the adapter's.
        train_plan, eval_plans: Batch plans; None gives batches of a fixed size.
        callbacks: Callbacks of the family.
        evaluation_tasks: What evaluations measure or show beside their splits.
        final_steps: What follows the weights at the end of a run.
        figure_notes: What the family's figures mean, and which of them decide.
        processing_class: Saved with the model, never applied to data.
        data_report: What was kept and dropped, by split.
        record: What the run's record keeps: manifest digests, model revision, adapter code digest.
        predict: Returns so many sample predictions for the report.
        next_command: The command line to type next, given the final model's directory.
    """

    model: Any
    train_dataset: Any
    adapter: TrainingAdapter | None = None
    eval_datasets: dict[str, Any] = field(default_factory=dict)
    data_collator: Callable[[list[Any]], Any] | None = None
    train_plan: BatchPlan | None = None
    eval_plans: dict[str, BatchPlan] = field(default_factory=dict)
    callbacks: list[Any] = field(default_factory=list)
    evaluation_tasks: list[EvaluationTask] = field(default_factory=list)
    final_steps: list[FinalStep] = field(default_factory=list)
    figure_notes: Sequence[FigureNote] = ()
    processing_class: Any = None
    data_report: list[SplitReport] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)
    predict: Callable[[int], list[PredictionRow]] | None = None
    next_command: Callable[[Path], str] | None = None
