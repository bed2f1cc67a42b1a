"""Configuration of ``voicehub train`` for codec language models: what presets compose to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.trainer.run_config import RunConfig
from voicehub.trainer.section import Section
from voicehub_codec_lm.codecs.loading import CodecConfig
from voicehub_codec_lm.sampling.settings import SamplingSettings
from voicehub_codec_lm.text.pretrained import TEMPLATE
from voicehub_data.config import BatchConfig, SplitsConfig
from voicehub_data.config.names import NormalizerName
from voicehub_hf.lora_config import LoraConfig

# -- text ------------------------------------------------------------------------------------


class CharactersTextConfig(Section):
    """One token a character of the training text, and one a speaker.

    Attributes:
        lower: lower-case first.
    """

    kind: Literal["characters"] = "characters"
    lower: bool = True


class CheckpointTextConfig(Section):
    """The tokenizer that the checkpoint comes with.

    Attributes:
        template: how the speaker is named in the text, where the manifest names speakers.
    """

    kind: Literal["checkpoint"] = "checkpoint"
    template: str = TEMPLATE


TextConfig = Annotated[CharactersTextConfig | CheckpointTextConfig, Field(discriminator="kind")]


# -- sizes of models from random weights -----------------------------------------------------


class FlatArchitecture(Section):
    """Sizes of a Llama from random weights; names are those of ``LlamaConfig``."""

    hidden_size: int = Field(default=192, gt=0)
    intermediate_size: int = Field(default=512, gt=0)
    num_hidden_layers: int = Field(default=4, gt=0)
    num_attention_heads: int = Field(default=4, gt=0)
    num_key_value_heads: int = Field(default=4, gt=0)
    max_position_embeddings: int = Field(default=4096, gt=0)
    tie_word_embeddings: bool = True


class DelayArchitecture(Section):
    """Sizes of a MusicGen decoder and its T5 text encoder from random weights.

    Attributes:
        hidden_size, num_hidden_layers, num_attention_heads, ffn_dim: of the decoder.
        text_layers: layers of the text encoder, which has the decoder's width.
        max_position_embeddings: steps that positions are kept for; more are computed when needed.
    """

    hidden_size: int = Field(default=128, gt=0)
    num_hidden_layers: int = Field(default=4, gt=0)
    num_attention_heads: int = Field(default=4, gt=0)
    ffn_dim: int = Field(default=512, gt=0)
    text_layers: int = Field(default=1, gt=0)
    max_position_embeddings: int = Field(default=2048, gt=0)


class DepthArchitecture(Section):
    """Sizes of a CSM from random weights.

    Attributes:
        hidden_size, intermediate_size, num_hidden_layers, num_attention_heads: of the backbone.
        depth_hidden_size, depth_intermediate_size, depth_layers, depth_attention_heads: of the
            depth decoder.
        max_position_embeddings: steps of the backbone.
    """

    hidden_size: int = Field(default=192, gt=0)
    intermediate_size: int = Field(default=512, gt=0)
    num_hidden_layers: int = Field(default=4, gt=0)
    num_attention_heads: int = Field(default=4, gt=0)
    depth_hidden_size: int = Field(default=128, gt=0)
    depth_intermediate_size: int = Field(default=256, gt=0)
    depth_layers: int = Field(default=2, gt=0)
    depth_attention_heads: int = Field(default=4, gt=0)
    max_position_embeddings: int = Field(default=2048, gt=0)


# -- the model -------------------------------------------------------------------------------


class LossConfig(Section):
    """How positions are weighed.

    Attributes:
        codebook_weights: one for each codebook; all 1 by default.
        text_weight: of the prompt's own tokens, where the layout predicts them; 0 asks for none.
        fused: do not materialise logits; off only to compare.
    """

    codebook_weights: list[float] | None = None
    text_weight: float = Field(default=0.0, ge=0)
    fused: bool = True


class CodecLMModelConfig(Section):
    """What all layouts share.

    Attributes:
        path: checkpoint of transformers: local directory or Hub id; None starts from random
            weights of ``architecture``.
        revision: branch, tag or commit of a Hub id.
        local_files_only: do not ask the Hub; use what was downloaded before.
        codec: whose codes are spoken; frozen, and kept apart from the model.
        text: where prompt tokens come from.
        speakers: name the speaker of the manifest in the prompt; ``auto`` does so where it names
            more than one.
        lora: train low-rank adapters alone, and new embeddings and heads in full.
        loss: how positions are weighed.
        sampling: how codes are drawn where synthesis is not told otherwise.
        dropout: rate inside a model from random weights.
    """

    path: str | None = None
    revision: str | None = None
    local_files_only: bool = False
    codec: CodecConfig
    text: TextConfig = Field(default_factory=CharactersTextConfig)
    speakers: Literal["auto", "always", "never"] = "auto"
    lora: LoraConfig | None = None
    loss: LossConfig = Field(default_factory=LossConfig)
    sampling: SamplingSettings = Field(default_factory=SamplingSettings)
    dropout: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        architecture = getattr(self, "architecture", None)
        if (self.path is None) == (architecture is None):
            raise ValueError("set exactly one of path (a checkpoint) and architecture (sizes)")
        if self.path is None and self.text.kind == "checkpoint":
            raise ValueError("text.kind 'checkpoint' needs a path; set text.kind=characters")
        if self.path is None and self.lora is not None:
            raise ValueError("lora adapts a checkpoint (path); random weights have nothing to keep")
        return self


class FlatModelConfig(CodecLMModelConfig):
    """A causal language model whose vocabulary goes on with audio."""

    architecture: FlatArchitecture | None = None


class DelayModelConfig(CodecLMModelConfig):
    """A decoder with a head for each codebook, under the delay pattern.

    Attributes:
        condition_dropout: share of training draws that see no text, which classifier-free
            guidance needs.
    """

    architecture: DelayArchitecture | None = None
    condition_dropout: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _text_is_not_predicted(self) -> Self:
        if self.loss.text_weight:
            raise ValueError("loss.text_weight: this layout reads the text and predicts none")
        return self


class DepthModelConfig(CodecLMModelConfig):
    """A backbone over frames and a depth decoder over the codebooks of one.

    Attributes:
        depth_share: the depth decoder is trained on one frame of so many.
    """

    architecture: DepthArchitecture | None = None
    depth_share: int = Field(default=16, ge=1)

    @model_validator(mode="after")
    def _text_is_not_predicted(self) -> Self:
        if self.loss.text_weight:
            raise ValueError("loss.text_weight: this layout reads the text and predicts none")
        return self


# -- data ------------------------------------------------------------------------------------


class CodecLMDataConfig(SplitsConfig):
    """Data of a run; where rows come from is in the base.

    Attributes:
        text_normalizer: applied to texts before they become tokens: none, basic, english, ....
        token_cache: folder that codes are kept in, of all corpora and codecs; see ``voicehub codec
            encode``.
        pack_steps: join short utterances to rows of at most so many steps; None puts each into a
            row of its own. Flat and depth layouts alone.
        batches: see ``voicehub_data.config``.
        eval_batch_size: utterances of an evaluation batch.
        max_unknown_fraction: stop when more than this share of the characters has no token.
    """

    text_normalizer: NormalizerName = "none"
    token_cache: str
    pack_steps: int | None = Field(default=None, ge=2)
    batches: BatchConfig = Field(default_factory=BatchConfig)
    eval_batch_size: int = Field(default=16, ge=1)
    max_unknown_fraction: float = Field(default=0.02, ge=0, le=1)


class CodecLMRunConfig(RunConfig):
    """What all layouts share."""

    model: CodecLMModelConfig
    data: CodecLMDataConfig

    @model_validator(mode="after")
    def _settings_have_one_home(self) -> Self:
        """Settings that this family would not read are refused."""
        self.refuse_unread(self.data.batches.homes("data.eval_batch_size"))
        return self


class FlatRunConfig(CodecLMRunConfig):
    """A run of the flat layout."""

    model: FlatModelConfig


class DelayRunConfig(CodecLMRunConfig):
    """A run of the delay layout."""

    model: DelayModelConfig

    @model_validator(mode="after")
    def _nothing_is_packed(self) -> Self:
        if self.data.pack_steps is not None:
            raise ValueError(
                "data.pack_steps: MusicGen's positions count from the start of a row, so that "
                "utterances cannot share one; batch similar lengths (data.batches) instead"
            )
        return self


class DepthRunConfig(CodecLMRunConfig):
    """A run of the depth layout."""

    model: DepthModelConfig
