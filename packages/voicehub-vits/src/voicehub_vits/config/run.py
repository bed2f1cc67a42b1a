"""The whole configuration of a run."""

from __future__ import annotations

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.run_config import RunConfig
from voicehub.trainer.section import Section
from voicehub_data.config.names import ModelTypeName
from voicehub_vits.config.data import VitsDataConfig
from voicehub_vits.config.model import VitsModelConfig


class VitsEvalConfig(Section):
    """What evaluations measure beside the loss terms.

    Attributes:
        samples: utterances of the first evaluation split that are spoken at every evaluation, for
            audio, pictures and the distances to their recordings; 0 for none.
        sentences: further texts that are spoken.
        seed: of the synthesis.
        recogniser: artifact, run or id of a recogniser; its word error rate on the samples is the
            intelligibility.
        recogniser_type: its model type, where an id or a directory does not say it.
        embedder: artifact of a speaker embedder; samples are compared with their recordings.
    """

    samples: int = Field(default=4, ge=0)
    sentences: list[str] = Field(default_factory=list)
    seed: int = 0
    recogniser: str | None = None
    recogniser_type: ModelTypeName | None = None
    embedder: str | None = None

    @model_validator(mode="after")
    def _type_of_something(self) -> Self:
        if self.recogniser_type is not None and self.recogniser is None:
            raise ValueError("recogniser_type says what recogniser is, and there is none")
        return self


class VitsRunConfig(RunConfig):
    """A run of VITS.

    Attributes:
        decay_per_epoch: the learning rates fall by this factor with every epoch, smoothly.
        eval: what evaluations measure.
    """

    model: VitsModelConfig
    data: VitsDataConfig
    eval: VitsEvalConfig = Field(default_factory=VitsEvalConfig)
    decay_per_epoch: float | None = Field(default=None, gt=0, le=1)

    @model_validator(mode="after")
    def _settings_have_one_home(self) -> Self:
        """Settings that this family would not read are refused."""
        self.refuse_unread(self.data.batches.homes("data.eval_batch_size"))
        schedule = self.training.lr_scheduler_type
        free = (TrainingArguments().lr_scheduler_type, "exponential")
        if self.decay_per_epoch is not None and schedule not in free:
            raise ValueError(
                "decay_per_epoch sets an exponential schedule; remove "
                f"training.lr_scheduler_type={schedule}, or decay_per_epoch"
            )
        return self
