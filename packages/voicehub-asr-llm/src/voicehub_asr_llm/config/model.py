"""The model section: parts, and what of them trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.trainer.section import Section
from voicehub_asr_llm.config.parts import (
    DecoderConfig,
    EncoderConfig,
    GenerationConfig,
    LoraConfig,
    PromptConfig,
)
from voicehub_asr_llm.config.projectors import MlpProjectorConfig, ProjectorConfig

Recipe = Literal["projector", "lora", "full", "custom"]


@dataclass(frozen=True)
class _Bound:
    """What a recipe is: flags that it fixes, and those it starts from."""

    fixed: dict[str, bool]
    defaults: dict[str, bool]
    lora: bool


_FLAGS = ("freeze_encoder", "freeze_language_model", "freeze_text_embeddings", "freeze_projector")
_LEFT = {"freeze_encoder": True, "freeze_projector": False}
_RECIPES: dict[str, _Bound] = {
    "projector": _Bound(
        {
            "freeze_language_model": True,
            "freeze_text_embeddings": True,
            "freeze_projector": False,
        },
        {"freeze_encoder": True},
        lora=False,
    ),
    "lora": _Bound(
        {"freeze_language_model": True, "freeze_text_embeddings": True}, _LEFT, lora=True
    ),
    "full": _Bound(
        {"freeze_language_model": False}, {**_LEFT, "freeze_text_embeddings": False}, lora=False
    ),
}


class AsrLlmModelConfig(Section):
    """An encoder, a projector, a decoder, and what of them trains.

    Attributes:
        recipe: what trains: ``projector`` alone; ``lora``: adapters of the decoder and the
            projector; ``full``: the decoder and the projector; ``custom``: what the flags say.
            A flag that contradicts the recipe is an error.
        encoder, projector, decoder, prompt, generation: the parts.
        freeze_encoder, freeze_language_model, freeze_text_embeddings, freeze_projector: None
            takes what the recipe says; for ``custom``, all but the projector is frozen.
        fused_loss: do not materialise logits; off only to compare.
    """

    recipe: Recipe = "lora"
    encoder: EncoderConfig
    projector: ProjectorConfig = Field(default_factory=MlpProjectorConfig)
    decoder: DecoderConfig
    prompt: PromptConfig = Field(default_factory=PromptConfig)
    generation: GenerationConfig = Field(default_factory=GenerationConfig)
    freeze_encoder: bool | None = None
    freeze_language_model: bool | None = None
    freeze_text_embeddings: bool | None = None
    freeze_projector: bool | None = None
    fused_loss: bool = True

    @model_validator(mode="after")
    def _settled(self) -> Self:
        """Fill in what the recipe decides, and refuse what contradicts it or itself."""
        bound = _RECIPES.get(self.recipe)
        if bound is None:
            bound = _Bound({}, {flag: flag != "freeze_projector" for flag in _FLAGS}, lora=False)
        for flag, wanted in bound.fixed.items():
            given = getattr(self, flag)
            if given is not None and given is not wanted:
                raise ValueError(
                    f"{flag}={str(given).lower()} contradicts recipe '{self.recipe}', for which it "
                    f"is {str(wanted).lower()}: choose another recipe, or recipe=custom"
                )
        for flag in _FLAGS:
            if getattr(self, flag) is None:
                setattr(self, flag, {**bound.defaults, **bound.fixed}[flag])
        if bound.lora and self.decoder.lora is None:
            self.decoder.lora = LoraConfig()
        if not bound.lora and self.recipe != "custom" and self.decoder.lora is not None:
            raise ValueError(
                f"decoder.lora is set, but recipe '{self.recipe}' has no adapters: choose "
                "recipe=lora, or leave decoder.lora out"
            )
        self._check_parts()
        self._check_storage()
        return self

    def _check_parts(self) -> None:
        lora = self.decoder.lora is not None
        if lora and not self.freeze_language_model:
            raise ValueError(
                "decoder.lora and freeze_language_model=false contradict each other: adapters are "
                "for a base that stays as it is"
            )
        if not lora and all(getattr(self, flag) for flag in _FLAGS):
            raise ValueError("every part is frozen and there are no adapters: nothing would train")
        if self.encoder.top_layers is not None and self.freeze_encoder:
            raise ValueError(
                "encoder.top_layers names layers that train, but freeze_encoder is true: set "
                "freeze_encoder=false, or leave top_layers out"
            )
        for part, frozen in (
            ("encoder", self.freeze_encoder),
            ("projector", self.freeze_projector),
        ):
            section: Any = getattr(self, part)
            for setting in ("learning_rate", "weight_decay"):
                if frozen and getattr(section, setting) is not None:
                    raise ValueError(
                        f"{part}.{setting} is set, but freeze_{part} is true: nothing would read it"
                    )

    def _check_storage(self) -> None:
        if self.decoder_base_trains and self.decoder.dtype != "float32":
            raise ValueError(
                f"decoder.dtype={self.decoder.dtype}, but weights of the decoder train "
                "(freeze_language_model and freeze_text_embeddings are not both true): small "
                "updates round to nothing there. Set decoder.dtype=float32 "
                "(training.bf16=true computes in bfloat16 all the same)"
            )
        if not self.freeze_encoder and self.encoder.dtype != "float32":
            raise ValueError(
                f"encoder.dtype={self.encoder.dtype}, but freeze_encoder is false: small updates "
                "round to nothing there. Set encoder.dtype=float32"
            )

    @property
    def decoder_base_trains(self) -> bool:
        """Whether weights of the decoder itself train."""
        return not (self.freeze_language_model and self.freeze_text_embeddings)
