"""Configuration of ``voicehub train`` for flow-matching text to speech."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.models.assets import Asset
from voicehub.trainer.run_config import RunConfig
from voicehub_data.config import BatchConfig, SplitsConfig
from voicehub_data.config.base import DataModel
from voicehub_data.config.names import NormalizerName
from voicehub_flow.mel import MelSettings
from voicehub_flow.sampling.config import AfterTrainingConfig
from voicehub_flow.vocoders.settings import VocoderSettings

# -- the network -----------------------------------------------------------------------------


class F5Architecture(DataModel):
    """Sizes of the network; the defaults are those of the published F5-TTS v1 base model.

    Attributes:
        dim, depth, heads: of the transformer.
        ff_mult: inner width of its feed-forward layers over ``dim``.
        text_dim: width of text embeddings.
        conv_layers: ConvNeXt blocks over the text.
        conv_kernel, conv_groups: of the two convolutions that tell frames their places.
        text_layout: where tokens stand among frames: ``front``, one a frame from the first on, as
            published; ``spread``, evenly over all frames, from which alignments are learnt sooner.
        mask_text_padding: what fills the text up to the frames is zero in every text block; as in
            v1, and not in the first published model.
        rotary_heads: heads that rotary positions are applied to; None is all, as in v1. The first
            published model has 1.
    """

    dim: int = Field(default=1024, gt=0)
    depth: int = Field(default=22, gt=0)
    heads: int = Field(default=16, gt=0)
    ff_mult: float = Field(default=2, gt=0)
    text_dim: int = Field(default=512, gt=0)
    conv_layers: int = Field(default=4, ge=0)
    conv_kernel: int = Field(default=31, ge=1)
    conv_groups: int = Field(default=16, ge=1)
    text_layout: Literal["front", "spread"] = "front"
    mask_text_padding: bool = True
    rotary_heads: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.dim % (2 * self.heads):
            raise ValueError(
                f"dim {self.dim} over heads {self.heads} must be an even number: rotary positions "
                "turn pairs of channels"
            )
        if self.dim % self.conv_groups:
            raise ValueError(f"dim {self.dim} is no multiple of conv_groups {self.conv_groups}")
        if self.conv_kernel % 2 == 0:
            raise ValueError(f"conv_kernel must be odd, got {self.conv_kernel}")
        if self.text_dim % 2:
            raise ValueError(f"text_dim must be even, got {self.text_dim}")
        if self.rotary_heads is not None and self.rotary_heads > self.heads:
            raise ValueError(f"rotary_heads {self.rotary_heads} is over heads {self.heads}")
        return self


# -- text ------------------------------------------------------------------------------------


class CharactersTextConfig(DataModel):
    """A vocabulary of the characters of the training text.

    Attributes:
        lower: lower-case first.
    """

    kind: Literal["characters"] = "characters"
    lower: bool = True


class CheckpointTextConfig(DataModel):
    """The vocabulary that the checkpoint comes with.

    Attributes:
        new_symbols: what becomes of characters that it lacks: ``extend`` appends rows to the text
            embedding and reports them, ``refuse`` stops, ``leave_out`` does not say them.
        lower: lower-case first.
    """

    kind: Literal["checkpoint"] = "checkpoint"
    new_symbols: Literal["extend", "refuse", "leave_out"] = "extend"
    lower: bool = False


TextConfig = Annotated[CharactersTextConfig | CheckpointTextConfig, Field(discriminator="kind")]


# -- the objective ---------------------------------------------------------------------------


class UniformTimeConfig(DataModel):
    """t ~ U(0, 1)."""

    kind: Literal["uniform"] = "uniform"


class LogitNormalTimeConfig(DataModel):
    """t = sigmoid(z), z ~ N(mean, scale^2)."""

    kind: Literal["logit-normal"] = "logit-normal"
    mean: float = 0.0
    scale: float = Field(default=1.0, gt=0)


TimeConfig = Annotated[UniformTimeConfig | LogitNormalTimeConfig, Field(discriminator="kind")]


class ObjectiveConfig(DataModel):
    """What training asks for; the defaults are F5's.

    Attributes:
        time: distribution of t.
        min_sigma: what is left of the noise at t = 1.
        infill_min, infill_max: share of the frames that are to be filled in, drawn uniformly
            between these; the rest is context.
        audio_drop: how often the context is not seen.
        joint_drop: how often neither context nor text (nor speaker) is seen, which guidance needs.
    """

    time: TimeConfig = Field(default_factory=UniformTimeConfig)
    min_sigma: float = Field(default=0.0, ge=0, lt=1)
    infill_min: float = Field(default=0.7, gt=0, le=1)
    infill_max: float = Field(default=1.0, gt=0, le=1)
    audio_drop: float = Field(default=0.3, ge=0, le=1)
    joint_drop: float = Field(default=0.2, ge=0, lt=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.infill_min > self.infill_max:
            raise ValueError(f"infill_min {self.infill_min} is over infill_max {self.infill_max}")
        return self


class SynthesisSettings(DataModel):
    """How speech is made from noise.

    Attributes:
        guidance_scale: g of ``g v_cond + (1 - g) v_null``; F5-TTS's strength is g - 1.
        steps, method: of the solver.
        sway: spacing of the steps, see ``voicehub_flow.solvers.solver_times``; F5-TTS uses -1.
        max_seconds: longest speech; a longer text is refused.
    """

    guidance_scale: float = Field(default=3.0, ge=0)
    steps: int = Field(default=32, ge=1)
    method: Literal["euler", "midpoint"] = "euler"
    sway: float = Field(default=-1.0, ge=-1, le=1.7)
    max_seconds: float = Field(default=30.0, gt=0)


# -- the model -------------------------------------------------------------------------------


class F5TTSModelConfig(DataModel):
    """The model of a run.

    Attributes:
        path: published checkpoint: directory with one ``*.safetensors`` and ``vocab.txt``, or a
            Hub id; None starts from random weights.
        subfolder: of a Hub repository, where those files lie.
        revision: branch, tag or commit of a Hub id.
        local_files_only: do not ask the Hub; use what was downloaded before.
        architecture: sizes; those of a checkpoint must be its own.
        text: the vocabulary.
        mel: frames that are made.
        normalize: ``corpus`` gives every mel bin of the training corpus mean 0 and deviation 1;
            ``none`` takes log-mel frames as they are, as published.
        speakers: condition on the speaker column of the manifest; ``auto`` does so from random
            weights where there are several.
        objective: what training asks for.
        synthesis: how speech is made where a call does not say otherwise.
        vocoder: frames to sound.
        dropout: rate in the transformer.
    """

    path: str | None = None
    subfolder: str | None = None
    revision: str | None = None
    local_files_only: bool = False
    architecture: F5Architecture = Field(default_factory=F5Architecture)
    text: TextConfig = Field(default_factory=CharactersTextConfig)
    mel: MelSettings = Field(default_factory=MelSettings)
    normalize: Literal["none", "corpus"] = "none"
    speakers: Literal["auto", "always", "never"] = "auto"
    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig)
    synthesis: SynthesisSettings = Field(default_factory=SynthesisSettings)
    vocoder: VocoderSettings = Field(default_factory=VocoderSettings)
    dropout: float = Field(default=0.0, ge=0, lt=1)

    def assets(self, setting: str) -> list[Asset]:
        """What it names outside the configuration: published files, and those of a vocoder."""
        found = self.vocoder.assets(f"{setting}.vocoder")
        if self.path is None:
            return found
        key = f"{setting}.path"
        known = Asset(key, self.path, "dataset")
        if known.local_path is not None:
            return [Asset(key, self.path, "file"), *found]
        cached = self._cached()
        if cached is not None:
            return [Asset(key, cached, "file"), *found]
        # A repository with files in folders and no config.json: it is fetched in our own way.
        own = Asset(
            key, self.path, "dataset", self.revision, self.local_files_only, fetch=self._fetch
        )
        return [own, *found]

    def _cached(self) -> str | None:
        from voicehub_flow.tts.fetching import cached_folder

        folder = cached_folder(str(self.path), self.subfolder, self.revision)
        return None if folder is None else str(folder)

    def _fetch(self) -> object:
        from voicehub_flow.tts.published import open_published

        return open_published(self)

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if self.path is None and self.text.kind == "checkpoint":
            raise ValueError("text.kind 'checkpoint' needs a path; set text.kind=characters")
        if self.path is not None and self.text.kind == "characters":
            raise ValueError(
                "text.kind 'characters' would reset the text embedding of the checkpoint, which "
                "then knows no word: set text.kind=checkpoint, which keeps it and adds rows for "
                "new characters"
            )
        if self.path is not None and self.normalize != "none":
            raise ValueError(
                "normalize 'corpus' changes the frames that the checkpoint was trained on; set "
                "normalize=none"
            )
        return self


# -- data ------------------------------------------------------------------------------------


class F5TTSDataConfig(SplitsConfig):
    """Data of a run; where rows come from is in the base.

    Attributes:
        text_normalizer: applied to texts before they become tokens: none, basic, english, ....
        cache_directory: folder for mel frames, by the hash of audio and settings; None keeps none.
        cache_gigabytes: memory for mel frames, in each worker.
        batches: see ``voicehub_data.config``.
        eval_batch_size: utterances of an evaluation batch.
        max_unknown_fraction: stop when more than this share of the characters has no token.
    """

    text_normalizer: NormalizerName = "none"
    cache_directory: str | None = None
    cache_gigabytes: float = Field(default=1.0, ge=0)
    batches: BatchConfig = Field(default_factory=BatchConfig)
    eval_batch_size: int = Field(default=16, ge=1)
    max_unknown_fraction: float = Field(default=0.02, ge=0, le=1)


class F5TTSRunConfig(RunConfig):
    """A run of the text-to-speech recipe."""

    model: F5TTSModelConfig
    data: F5TTSDataConfig
    after_training: AfterTrainingConfig = Field(default_factory=AfterTrainingConfig)

    @model_validator(mode="after")
    def _settings_have_one_home(self) -> Self:
        """Settings that this recipe would not read are refused."""
        self.refuse_unread(self.data.batches.homes("data.eval_batch_size"))
        return self
