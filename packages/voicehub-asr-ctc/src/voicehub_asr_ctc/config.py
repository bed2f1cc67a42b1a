"""Configuration of ``voicehub train`` for this family: what presets compose to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.trainer.run_config import RunConfig
from voicehub.trainer.section import Section
from voicehub_data.config import (
    AugmentConfig,
    BatchConfig,
    SplitsConfig,
)
from voicehub_data.config.names import NormalizerName
from voicehub_hf.lora_config import LoraConfig

# -- tokenizers ------------------------------------------------------------------------------


class CharactersConfig(Section):
    """One token a character, built from the training text.

    Attributes:
        min_count: characters seen fewer times in the training text are left out, and reported.
    """

    kind: Literal["characters"] = "characters"
    min_count: int = Field(default=1, ge=1)


class SubwordsConfig(Section):
    """Byte-pair encoding trained on the training text.

    Attributes:
        vocab_size: tokens, blank included; the training text may have room for fewer.
        min_count: characters seen fewer times are left out, and reported.
    """

    kind: Literal["bpe"] = "bpe"
    vocab_size: int = Field(default=256, ge=2)
    min_count: int = Field(default=1, ge=1)


class SentencePieceConfig(Section):
    """A SentencePiece model: a given one, or one trained on the training text.

    Attributes:
        path: a ``.model`` file; None trains one.
        vocab_size, algorithm: of the one that is trained.
    """

    kind: Literal["sentencepiece"] = "sentencepiece"
    path: str | None = None
    vocab_size: int = Field(default=256, ge=2)
    algorithm: Literal["unigram", "bpe"] = "unigram"


class GivenTokenizerConfig(Section):
    """A tokenizer saved before: the directory of an artifact or of a tokenizer of ours."""

    kind: Literal["given"] = "given"
    path: str


class CheckpointTokenizerConfig(Section):
    """The tokenizer that the pretrained checkpoint comes with; its output layer is kept."""

    kind: Literal["checkpoint"] = "checkpoint"


BuiltTokenizer = CharactersConfig | SubwordsConfig | SentencePieceConfig | GivenTokenizerConfig
LogMelTokenizerConfig = Annotated[BuiltTokenizer, Field(discriminator="kind")]
PretrainedTokenizerConfig = Annotated[
    BuiltTokenizer | CheckpointTokenizerConfig, Field(discriminator="kind")
]


# -- models ----------------------------------------------------------------------------------


class ObjectiveConfig(Section):
    """What training adds to the CTC loss; evaluations report the loss alone.

    Attributes:
        label_smoothing: share of the divergence of each frame from the uniform distribution (Kim
            et al. 2018).
        consistency_weight: weight of the disagreement between two views of each utterance, masked
            by two draws of ``data.augment.spec_augment`` (CR-CTC, Yao et al. 2024, who take 0.2);
            a batch then costs twice the memory and time. 0: one view.
    """

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    consistency_weight: float = Field(default=0.0, ge=0)


class LogMelModelConfig(ObjectiveConfig):
    """The log-mel model. Frames are ``2 * hop_length / sample_rate`` seconds apart.

    Attributes:
        sample_rate: Hz that all audio is brought to.
        n_mels, n_fft, win_length, hop_length: of the log-mel features, in bins and samples.
        hidden_size, kernel_size, dropout: of the convolution blocks.
        num_blocks: convolution blocks.
        attention_every: a self-attention block follows every so many convolution blocks; 0: none.
        num_heads: of self-attention.
        intermediate_weight: weight of a second CTC loss taken half-way up the encoder.
        tokenizer: what the outputs are.
    """

    sample_rate: int = Field(default=16000, gt=0)
    n_mels: int = Field(default=80, gt=0)
    n_fft: int = Field(default=512, gt=0)
    win_length: int = Field(default=400, gt=0)
    hop_length: int = Field(default=160, gt=0)
    hidden_size: int = Field(default=128, gt=0)
    num_blocks: int = Field(default=6, gt=0)
    kernel_size: int = Field(default=11, gt=0)
    attention_every: int = Field(default=3, ge=0)
    num_heads: int = Field(default=4, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    intermediate_weight: float = Field(default=0.0, ge=0, lt=1)
    tokenizer: LogMelTokenizerConfig = Field(default_factory=CharactersConfig)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {self.kernel_size}")
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is no multiple of num_heads {self.num_heads}"
            )
        if not self.win_length <= self.n_fft:
            raise ValueError(f"win_length {self.win_length} is over n_fft {self.n_fft}")
        return self


class PretrainedModelConfig(ObjectiveConfig):
    """A CTC class of transformers.

    Attributes:
        path: local directory or Hub id.
        revision: branch, tag or commit of a Hub id.
        local_files_only: do not ask the Hub; use what was downloaded before.
        tokenizer: ``checkpoint`` keeps tokenizer and output layer; others make a new output layer.
        freeze: ``feature-encoder``: the convolutional front end (for log-mel models the layer
            that reads the features); ``encoder``: everything below the output layer; ``none``.
        freeze_encoder_steps: the whole encoder stays as it is for the first so many updates.
        freeze_batch_norm: batch normalisation keeps the statistics it was pretrained with, so
            that an utterance's loss does not depend on its batch mates.
        lora: train low-rank adapters of the encoder and the output layer alone.
        exact_padding: utterances of unequal length run apart in models whose outputs depend on
            the padding (group normalisation over time, subsampling adapters).
        hidden_dropout, attention_dropout, activation_dropout, feat_proj_dropout, final_dropout:
            replace the checkpoint's where given and where the model has them.
    """

    path: str
    revision: str | None = None
    local_files_only: bool = False
    tokenizer: PretrainedTokenizerConfig = Field(default_factory=CharactersConfig)
    freeze: Literal["feature-encoder", "encoder", "none"] = "feature-encoder"
    freeze_encoder_steps: int = Field(default=0, ge=0)
    freeze_batch_norm: bool = True
    lora: LoraConfig | None = None
    exact_padding: bool = True
    hidden_dropout: float | None = Field(default=None, ge=0, lt=1)
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    activation_dropout: float | None = Field(default=None, ge=0, lt=1)
    feat_proj_dropout: float | None = Field(default=None, ge=0, lt=1)
    final_dropout: float | None = Field(default=None, ge=0, lt=1)

    @model_validator(mode="after")
    def _one_way_to_freeze(self) -> Self:
        if self.freeze_encoder_steps and self.freeze == "encoder":
            raise ValueError("freeze_encoder_steps does nothing where freeze is 'encoder'")
        if self.lora is not None and self.freeze_encoder_steps:
            raise ValueError("freeze_encoder_steps does nothing where lora is set")
        return self

    @property
    def dropouts(self) -> dict[str, float]:
        """The dropout rates that were given."""
        names = ("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout")
        values = {name: getattr(self, name) for name in (*names, "final_dropout")}
        return {name: value for name, value in values.items() if value is not None}


# -- data ------------------------------------------------------------------------------------


class CTCDataConfig(SplitsConfig):
    """Data of a CTC run; where rows come from is in the base.

    Rows that cannot be aligned count towards ``max_drop_fraction``.

    Attributes:
        text_normalizer: applied to transcripts before they become labels: none, basic, english,
            whisper-english.
        text_case: then ``lower`` or ``upper`` the transcripts; ``keep`` leaves them.
        metric_normalizer: applied to both sides before words are counted.
        augment, batches: see ``voicehub_data.config``.
        eval_padded_seconds: cap on padded seconds of an evaluation batch.
        unalignable: what to do with training rows whose labels need more frames than the audio
            has: ``drop`` (counted) or ``error``.
        max_unknown_fraction: stop when more than this share of the transcripts' characters has no
            token.
        cache_megabytes: decoded audio and features kept in memory, per process.
    """

    text_normalizer: NormalizerName = "basic"
    text_case: Literal["keep", "lower", "upper"] = "keep"
    metric_normalizer: NormalizerName = "basic"
    augment: AugmentConfig = Field(default_factory=AugmentConfig)
    batches: BatchConfig = Field(default_factory=BatchConfig)
    eval_padded_seconds: float = Field(default=120.0, gt=0)
    unalignable: Literal["drop", "error"] = "drop"
    max_unknown_fraction: float = Field(default=0.02, ge=0, le=1)
    cache_megabytes: int = Field(default=512, ge=0)


class CTCRunConfig(RunConfig):
    """What both kinds of models share."""

    data: CTCDataConfig

    @model_validator(mode="after")
    def _batches_have_one_home(self) -> Self:
        """Batch settings that the plans of this family would not read are refused."""
        self.refuse_unread(self.data.batches.homes("data.eval_padded_seconds"))
        return self

    @model_validator(mode="after")
    def _views_differ(self) -> Self:
        """Two views of an utterance that nothing masks are the same."""
        model: ObjectiveConfig = self.model  # type: ignore[attr-defined]
        if model.consistency_weight and self.data.augment.spec_augment is None:
            raise ValueError(
                "model.consistency_weight needs two unlike views of each utterance: set "
                "data.augment.spec_augment"
            )
        return self


class LogMelRunConfig(CTCRunConfig):
    """A run of the log-mel model."""

    model: LogMelModelConfig = Field(default_factory=LogMelModelConfig)


class PretrainedRunConfig(CTCRunConfig):
    """A run of a CTC class of transformers."""

    model: PretrainedModelConfig
