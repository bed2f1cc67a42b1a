"""Configuration of ``voicehub train`` for this family: what presets compose to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.trainer.run_config import RunConfig
from voicehub.trainer.section import Section
from voicehub_data.config import (
    AugmentConfig,
    FilterConfig,
    SplitsConfig,
)
from voicehub_hf.lora_config import LoraConfig
from voicehub_xvector.head_config import EcapaConfig, FuserConfig, HeadConfig
from voicehub_xvector.loss_config import LossConfig
from voicehub_xvector.sampler_config import BucketedConfig, SamplerConfig
from voicehub_xvector.train_modes import ENCODER_MODES, LORA_MODES, NATIVE_MODES

# -- models ----------------------------------------------------------------------------------


class LogMelFeaturesConfig(Section):
    """Log-mel features of ours.

    Attributes:
        sample_rate: Hz that all audio is brought to.
        n_mels, n_fft, win_length, hop_length: bins and samples; None: 25 and 10 ms windows and
            hops, the transform the next power of two.
        normalize: over an utterance: ``mean`` of each bin removed; ``mean+variance``; ``none``.
    """

    kind: Literal["log-mel"] = "log-mel"
    sample_rate: int = Field(default=16000, gt=0)
    n_mels: int = Field(default=80, gt=0)
    n_fft: int | None = Field(default=None, gt=0)
    win_length: int | None = Field(default=None, gt=0)
    hop_length: int | None = Field(default=None, gt=0)
    normalize: Literal["none", "mean", "mean+variance"] = "mean"

    @property
    def window(self) -> int:
        """Samples of a window."""
        return self.win_length or round(0.025 * self.sample_rate)

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return self.hop_length or round(0.01 * self.sample_rate)

    @property
    def fft(self) -> int:
        """Size of the transform."""
        return self.n_fft or 1 << (self.window - 1).bit_length()

    @model_validator(mode="after")
    def _window_fits(self) -> Self:
        if self.window > self.fft:
            raise ValueError(f"win_length {self.window} is over n_fft {self.fft}")
        return self


class FbankFeaturesConfig(Section):
    """speechbrain's features, each bin's mean over the utterance removed.

    With them a trained ECAPA runs in plain speechbrain, from waveforms to embeddings.

    Attributes:
        sample_rate: Hz.
        n_mels: bins.
    """

    kind: Literal["fbank"] = "fbank"
    sample_rate: int = Field(default=16000, gt=0)
    n_mels: int = Field(default=80, gt=0)


FeaturesConfig = Annotated[LogMelFeaturesConfig | FbankFeaturesConfig, Field(discriminator="kind")]


class LogMelModelConfig(Section):
    """A model trained from random weights on log-mel features.

    Attributes:
        features: front end.
        head: from features to the embedding.
        loss: what it is trained with.
        train_mode: what trains; see ``voicehub_xvector.train_modes``.
    """

    features: FeaturesConfig = Field(default_factory=LogMelFeaturesConfig)
    head: HeadConfig
    loss: LossConfig = Field(default_factory=LossConfig)
    train_mode: Literal["full", "frozen", "ft-embed-affine"] = "full"

    @model_validator(mode="after")
    def _known_mode(self) -> Self:
        assert self.train_mode in NATIVE_MODES
        return self


class EncoderLoraConfig(LoraConfig):
    """Low-rank adapters in the encoder; smaller ones do here."""

    rank: int = Field(default=4, gt=0)
    alpha: float = Field(default=8, gt=0)


class EncoderModelConfig(Section):
    """A pretrained encoder with fuser and head.

    Attributes:
        path: local directory or Hub id of the encoder.
        revision: branch, tag or commit of a Hub id.
        local_files_only: do not ask the Hub; use what was downloaded before.
        train_mode: what trains; see ``voicehub_xvector.train_modes``.
        lora: of the modes that train adapters; they create them with its defaults when it is not
            given.
        fuser: hidden states to the head's input.
        head: to the embedding.
        loss: what it is trained with.
        exact_padding: utterances of unequal length run apart in encoders whose outputs depend on
            the padding (group normalisation over time, subsampling adapters).
        chunk_seconds, context_seconds: longer recordings run through the encoder in pieces of the
            first, with so much of their surroundings on both sides; what comes out is joined.
        hidden_dropout, attention_dropout, activation_dropout, feat_proj_dropout: replace the
            checkpoint's where given and where the encoder has them.
    """

    path: str
    revision: str | None = None
    local_files_only: bool = False
    train_mode: str = "hf-feats-frozen"
    lora: EncoderLoraConfig | None = None
    fuser: FuserConfig = Field(default_factory=FuserConfig)
    head: HeadConfig
    loss: LossConfig = Field(default_factory=LossConfig)
    exact_padding: bool = True
    chunk_seconds: float = Field(default=20.0, gt=0)
    context_seconds: float = Field(default=1.0, ge=0)
    hidden_dropout: float | None = Field(default=None, ge=0, lt=1)
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    activation_dropout: float | None = Field(default=None, ge=0, lt=1)
    feat_proj_dropout: float | None = Field(default=None, ge=0, lt=1)

    @model_validator(mode="after")
    def _mode_and_lora(self) -> Self:
        if self.train_mode not in ENCODER_MODES:
            from voicehub.suggest import did_you_mean

            raise ValueError(
                f"train_mode '{self.train_mode}' is unknown."
                f"{did_you_mean(self.train_mode, ENCODER_MODES)} Modes are "
                f"{', '.join(ENCODER_MODES)}"
            )
        if self.lora is not None and self.train_mode not in LORA_MODES:
            raise ValueError(
                f"lora is read by {', '.join(LORA_MODES)} alone; train_mode is '{self.train_mode}'"
            )
        if isinstance(self.head, EcapaConfig) and not self.exact_padding:
            raise ValueError("exact_padding=false does nothing for an ECAPA head, which needs it")
        return self

    @property
    def dropouts(self) -> dict[str, float]:
        """The dropout rates that were given."""
        names = ("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout")
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}


# -- data ------------------------------------------------------------------------------------


class SpeakerFilterConfig(FilterConfig):
    """Which training rows are left out; transcripts are not needed here."""

    drop_empty_text: bool = False


class XVectorDataConfig(SplitsConfig):
    """Data of a run; where rows come from is in the base.

    Every training row needs a ``speaker``; those of evaluation splits may be new.

    Attributes:
        train_speakers: of the training rows, take these speakers alone; None: all.
        min_utterances: speakers with fewer training rows are left out, and counted.
        filters, augment: see ``voicehub_data.config``.
        speed_speakers: every row is also played at these speeds, as a speaker of its own.
        sampler: which rows form which batches.
        eval_padded_seconds: cap on padded seconds of an evaluation batch.
        cache_megabytes: decoded audio and features kept in memory, per process.
    """

    train_speakers: list[str] | None = None
    min_utterances: int = Field(default=1, ge=1)
    filters: SpeakerFilterConfig = Field(default_factory=SpeakerFilterConfig)
    augment: AugmentConfig = Field(default_factory=AugmentConfig)
    speed_speakers: list[Annotated[float, Field(ge=0.5, le=2.0)]] = Field(default_factory=list)
    sampler: SamplerConfig = Field(default_factory=BucketedConfig)
    eval_padded_seconds: float = Field(default=120.0, gt=0)
    cache_megabytes: int = Field(default=512, ge=0)

    @model_validator(mode="after")
    def _speeds(self) -> Self:
        if 1.0 in self.speed_speakers or len(set(self.speed_speakers)) < len(self.speed_speakers):
            raise ValueError("speed_speakers: give other speeds than 1, each once")
        return self


class XVectorRunConfig(RunConfig):
    """What all model types share."""

    data: XVectorDataConfig

    @model_validator(mode="after")
    def _batches_have_one_home(self) -> Self:
        """Batch settings that the plans of this family would not read are refused."""
        self.refuse_unread(
            {
                "per_device_train_batch_size": "data.sampler",
                "per_device_eval_batch_size": "data.eval_padded_seconds",
                "dataloader_drop_last": "data.sampler",
            }
        )
        return self

    @model_validator(mode="after")
    def _ecapa_gets_pieces(self) -> Self:
        """Its batch normalisation needs a batch, and its convolutions need equal lengths."""
        ecapa = isinstance(getattr(self.model, "head", None), EcapaConfig)
        if ecapa and isinstance(self.data.sampler, BucketedConfig):
            raise ValueError(
                "an ECAPA head trains on pieces of equal length: set data.sampler.kind to "
                "random-chunk, class-weighted or hard-prototypes"
            )
        return self


class LogMelRunConfig(XVectorRunConfig):
    """A run on log-mel features."""

    model: LogMelModelConfig


class EncoderRunConfig(XVectorRunConfig):
    """A run on a pretrained encoder."""

    model: EncoderModelConfig
