"""The configuration of ``voicehub train``: what a preset composes to, before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from voicehub.errors import ConfigurationError
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.section import Section


class RunConfig(Section):
    """Sections common to every family. A family subclasses this and narrows ``model`` and ``data``.

    Unknown keys are errors at every level, so a misspelt setting cannot train the default.
    """

    family: str = Field(description="The family that the preset belongs to, e.g. 'asr-ctc'.")
    model_type: str = Field(description="The registered model type, e.g. 'ctc-logmel'.")
    name: str = Field(default="run", description="Name of the run, shown in reports.")
    model: Any = Field(default_factory=dict, description="The family's model section.")
    data: Any = Field(default_factory=dict, description="The family's data section.")
    training: TrainingArguments = Field(default_factory=TrainingArguments)
    init_from: str | None = Field(
        default=None,
        description="An earlier model, or the run that ended with it: training starts from its "
        "weights and takes nothing else of it. null: from what 'model' says.",
    )
    resume: bool | str | None = Field(
        default=None,
        description="'auto': continue from the newest complete checkpoint if there is one; true: "
        "continue, and fail without one; a path: that checkpoint; null: start anew.",
    )

    def refuse_unread(self, homes: Mapping[str, str]) -> None:
        """Refuse settings of ``training`` that the family does not read.

        Called by a family's validator.

        Args:
            homes: Name of such a setting -> the setting that is read instead.

        Raises:
            ValueError: one of them is not at its default.
        """
        default = TrainingArguments()
        for name, home in homes.items():
            if getattr(self.training, name) != getattr(default, name):
                raise ValueError(f"training.{name} is not read here: set {home} instead")

    def evaluate_nothing(self) -> list[str]:
        """Turn evaluations off for a run without data for them.

        What is chosen or stopped by evaluations is turned off as well.

        Returns:
            What to say of it; empty where the run evaluates nothing anyway.

        Raises:
            ConfigurationError: the learning rate follows what evaluations find.
        """
        training = self.training
        if training.eval_strategy == "no":
            return []
        if training.lr_scheduler_type == "plateau":
            raise ConfigurationError(
                "training.lr_scheduler_type=plateau follows evaluations, and no data.eval was "
                "given. Give data.eval=MANIFEST, or choose another schedule, such as linear."
            )
        idle = [
            name
            for name in ("load_best_model_at_end", "early_stopping_patience")
            if getattr(training, name)
        ]
        # In this order: on the way the settings must not contradict each other.
        training.load_best_model_at_end = False
        training.metric_for_best_model = None
        training.early_stopping_patience = None
        training.eval_strategy = "no"
        without = f", and there is no {' and no '.join(idle)}" if idle else ""
        return [f"no data.eval was given: nothing is evaluated{without}"]
