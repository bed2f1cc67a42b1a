"""The configuration of ``voicehub train``: what a preset composes to, before anything is built."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from voicehub.trainer.arguments import TrainingArguments


class RunConfig(BaseModel):
    """Sections common to every family. A family subclasses this and narrows ``model`` and ``data``.

    Unknown keys are errors at every level, so a misspelt setting cannot train the default.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

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
