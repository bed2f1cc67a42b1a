"""The model section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.trainer.section import Section
from voicehub_vits.acoustic import AcousticConfig
from voicehub_vits.config.parts import (
    ArchitectureConfig,
    DiscriminatorConfig,
    DropoutConfig,
    DurationDiscriminatorConfig,
    LossWeights,
)
from voicehub_vits.config.text import CheckpointTextConfig, TextConfig

#: Parts of the generator that can be kept as they are.
PARTS = ("text_encoder", "posterior_encoder", "flow", "decoder", "duration_predictor")
Part = Literal["text_encoder", "posterior_encoder", "flow", "decoder", "duration_predictor"]


class VitsModelConfig(Section):
    """What is trained.

    Attributes:
        path: checkpoint of ``VitsModel``: local directory or Hub id; None starts from random
            weights of ``architecture``.
        revision: branch, tag or commit of a Hub id.
        local_files_only: do not ask the Hub; use what was downloaded before.
        architecture: sizes of a model from random weights.
        text: where token ids come from.
        training_acoustic_config: features of the full objective.
        generator_only: train text encoder, flow and duration predictor without adversaries, for a
            checkpoint whose features are not known. No full VITS fine-tuning, and labelled so.
        discriminator: sizes of the waveform discriminators, always from random weights unless the
            path is an artifact that holds them.
        duration_discriminator: adds one, in a phase of its own.
        weights: of the loss terms.
        freeze: parts of the generator that stay as they are.
        speaker_table: ``keep`` the checkpoint's voices, or a ``new`` one for every speaker of the
            training manifest.
        language_conditioning: an embedding for every language of the manifest, added to the
            speaker's.
        dropout: rates that replace the checkpoint's.
    """

    path: str | None = None
    revision: str | None = None
    local_files_only: bool = False
    architecture: ArchitectureConfig | None = None
    text: TextConfig = Field(default_factory=CheckpointTextConfig)
    training_acoustic_config: AcousticConfig | None = None
    generator_only: bool = False
    discriminator: DiscriminatorConfig = Field(default_factory=DiscriminatorConfig)
    duration_discriminator: DurationDiscriminatorConfig | None = None
    weights: LossWeights = Field(default_factory=LossWeights)
    freeze: list[Part] = Field(default_factory=list)
    speaker_table: Literal["keep", "new"] = "keep"
    language_conditioning: bool = False
    dropout: DropoutConfig = Field(default_factory=DropoutConfig)

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if (self.path is None) == (self.architecture is None):
            raise ValueError("set exactly one of path (a checkpoint) and architecture (sizes)")
        if self.path is None and isinstance(self.text, CheckpointTextConfig):
            raise ValueError("text.kind 'checkpoint' needs a path; set text.kind=characters")
        if self.path is None and self.training_acoustic_config is None:
            raise ValueError("a model from random weights needs training_acoustic_config")
        if self.generator_only and self.training_acoustic_config is not None:
            raise ValueError(
                "generator_only and training_acoustic_config exclude each other: with the "
                "checkpoint's features known, the full objective trains"
            )
        if self.generator_only and self.duration_discriminator is not None:
            raise ValueError("generator_only has no adversary: remove duration_discriminator")
        if len(set(self.freeze)) == len(PARTS):
            raise ValueError("freeze names every part: nothing would train")
        return self
