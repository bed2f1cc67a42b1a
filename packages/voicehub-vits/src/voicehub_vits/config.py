"""Configuration of ``voicehub train`` for VITS: what presets compose to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.run_config import RunConfig
from voicehub.trainer.section import Section
from voicehub_data.config import BatchConfig, SplitsConfig
from voicehub_vits.acoustic import AcousticConfig
from voicehub_vits.specs import PERIODS

#: Parts of the generator that can be kept as they are.
PARTS = ("text_encoder", "posterior_encoder", "flow", "decoder", "duration_predictor")
Part = Literal["text_encoder", "posterior_encoder", "flow", "decoder", "duration_predictor"]


# -- text ------------------------------------------------------------------------------------


class CheckpointTextConfig(Section):
    """The tokenizer that the checkpoint comes with."""

    kind: Literal["checkpoint"] = "checkpoint"


class CharactersTextConfig(Section):
    """One token a character of the training text.

    Attributes:
        min_count: characters seen fewer times get no token, and are reported.
        lower: lower-case first.
        add_blank: a blank between all tokens, as published.
    """

    kind: Literal["characters"] = "characters"
    min_count: int = Field(default=1, ge=1)
    lower: bool = True
    add_blank: bool = True


class PhonemesTextConfig(Section):
    """One token a phoneme symbol of the training text, by espeak-ng (the extra ``phonemes``).

    Attributes:
        language: voice of espeak-ng, such as ``en-us``.
        min_count, add_blank: as for characters.
    """

    kind: Literal["phonemes"] = "phonemes"
    language: str = "en-us"
    min_count: int = Field(default=1, ge=1)
    add_blank: bool = True


TextConfig = Annotated[
    CheckpointTextConfig | CharactersTextConfig | PhonemesTextConfig, Field(discriminator="kind")
]


# -- the model -------------------------------------------------------------------------------


class ArchitectureConfig(Section):
    """Sizes of a model from random weights; names and defaults are those of ``VitsConfig``.

    ``speaker_embedding_size`` over 0 makes a voice for every speaker of the training manifest.
    """

    hidden_size: int = Field(default=192, gt=0)
    num_hidden_layers: int = Field(default=6, gt=0)
    num_attention_heads: int = Field(default=2, gt=0)
    window_size: int = Field(default=4, gt=0)
    ffn_dim: int = Field(default=768, gt=0)
    ffn_kernel_size: int = Field(default=3, gt=0)
    flow_size: int = Field(default=192, gt=0)
    use_stochastic_duration_prediction: bool = True
    speaker_embedding_size: int = Field(default=0, ge=0)
    upsample_initial_channel: int = Field(default=512, gt=0)
    upsample_rates: list[int] = Field(default_factory=lambda: [8, 8, 2, 2])
    upsample_kernel_sizes: list[int] = Field(default_factory=lambda: [16, 16, 4, 4])
    resblock_kernel_sizes: list[int] = Field(default_factory=lambda: [3, 7, 11])
    resblock_dilation_sizes: list[list[int]] = Field(
        default_factory=lambda: [[1, 3, 5], [1, 3, 5], [1, 3, 5]]
    )
    depth_separable_num_layers: int = Field(default=3, gt=0)
    duration_predictor_num_flows: int = Field(default=4, gt=0)
    duration_predictor_filter_channels: int = Field(default=256, gt=0)
    prior_encoder_num_flows: int = Field(default=4, gt=0)
    prior_encoder_num_wavenet_layers: int = Field(default=4, gt=0)
    posterior_encoder_num_wavenet_layers: int = Field(default=16, gt=0)
    wavenet_kernel_size: int = Field(default=5, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is no multiple of num_attention_heads "
                f"{self.num_attention_heads}"
            )
        if self.flow_size % 2:
            raise ValueError(f"flow_size must be even, got {self.flow_size}")
        if len(self.upsample_rates) != len(self.upsample_kernel_sizes):
            raise ValueError("upsample_rates and upsample_kernel_sizes differ in length")
        for rate, kernel in zip(self.upsample_rates, self.upsample_kernel_sizes, strict=True):
            if kernel < rate or (kernel - rate) % 2:
                raise ValueError(
                    f"an upsample kernel of {kernel} does not fit its rate {rate}: it must be at "
                    "least the rate, and differ from it by an even number"
                )
        if len(self.resblock_kernel_sizes) != len(self.resblock_dilation_sizes):
            raise ValueError("resblock_kernel_sizes and resblock_dilation_sizes differ in length")
        if self.upsample_initial_channel % 2 ** len(self.upsample_rates):
            raise ValueError(
                f"upsample_initial_channel {self.upsample_initial_channel} is halved "
                f"{len(self.upsample_rates)} times, which leaves a remainder"
            )
        return self


class DropoutConfig(Section):
    """Dropout rates; where absent the checkpoint's hold, or published ones."""

    hidden_dropout: float | None = Field(default=None, ge=0, lt=1)
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    activation_dropout: float | None = Field(default=None, ge=0, lt=1)
    duration_predictor_dropout: float | None = Field(default=None, ge=0, lt=1)
    wavenet_dropout: float | None = Field(default=None, ge=0, lt=1)

    @property
    def given(self) -> dict[str, float]:
        """The rates that were set."""
        return self.model_dump(exclude_none=True)


class DiscriminatorConfig(Section):
    """The waveform discriminators.

    Attributes:
        width: factor on the published channels.
        periods: of the period discriminators, in samples.
    """

    width: float = Field(default=1.0, gt=0)
    periods: list[int] = Field(default_factory=lambda: list(PERIODS), min_length=1)


class DurationDiscriminatorConfig(Section):
    """VITS2's discriminator of durations.

    Attributes:
        channels: inside.
    """

    channels: int = Field(default=192, gt=0)


class LossWeights(Section):
    """Weights of the terms.

    Attributes:
        mel, duration, kl, adversarial, feature_matching: of the generator. Feature matching
            carries its published factor of 2 already.
        discriminator: of the discriminators' own loss.
        duration_adversarial, duration_discriminator: of both sides of the duration discriminator.
    """

    mel: float = Field(default=45.0, ge=0)
    duration: float = Field(default=1.0, ge=0)
    kl: float = Field(default=1.0, ge=0)
    adversarial: float = Field(default=1.0, ge=0)
    feature_matching: float = Field(default=1.0, ge=0)
    discriminator: float = Field(default=1.0, gt=0)
    duration_adversarial: float = Field(default=1.0, ge=0)
    duration_discriminator: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _something_trains(self) -> Self:
        # Without adversaries duration and KL are all there is; the mel term moves no text.
        if self.duration == 0 and self.kl == 0:
            raise ValueError("duration and kl are both 0: the text encoder would not train")
        return self


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


# -- data ------------------------------------------------------------------------------------


class VitsDataConfig(SplitsConfig):
    """Data of a VITS run; where rows come from is in the base.

    Attributes:
        text_normalizer: applied to texts before they become tokens: none, basic, english, ....
        trim_silence: cut silence at both ends of a clip.
        trim_threshold_db: what is this many dB below the loudest frame counts as silence.
        trim_margin: seconds of silence that stay.
        loudness: RMS of the speech in dBFS that clips are brought to; None leaves them.
        speaker_ids: row of the speaker table by speaker name; by default in the order of the
            sorted names.
        batches: see ``voicehub_data.config``.
        eval_batch_size: utterances of an evaluation batch.
        unusable: what to do with training rows that cannot be trained on (no known symbol, shorter
            than a segment, more tokens than frames): ``error``, or ``drop`` (counted).
        max_unknown_fraction: stop when more than this share of the symbols has no token.
        cache_directory: prepared audio and spectrograms are kept here, named by the hash of what
            they were made of; None keeps none on disk.
        cache_megabytes: of them in memory, per process.
    """

    text_normalizer: str = "none"
    trim_silence: bool = True
    trim_threshold_db: float = Field(default=40.0, gt=0)
    trim_margin: float = Field(default=0.05, ge=0)
    loudness: float | None = Field(default=-23.0, lt=0)
    speaker_ids: dict[str, int] = Field(default_factory=dict)
    batches: BatchConfig = Field(default_factory=BatchConfig)
    eval_batch_size: int = Field(default=8, ge=1)
    unusable: Literal["error", "drop"] = "error"
    max_unknown_fraction: float = Field(default=0.02, ge=0, le=1)
    cache_directory: str | None = None
    cache_megabytes: int = Field(default=512, ge=0)


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
    recogniser_type: str | None = None
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
