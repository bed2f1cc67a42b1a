"""The whole configuration of a run."""

from __future__ import annotations

from pydantic import model_validator
from typing_extensions import Self

from voicehub.trainer.run_config import RunConfig
from voicehub_asr_llm.config.data import AsrLlmDataConfig
from voicehub_asr_llm.config.model import AsrLlmModelConfig


class AsrLlmRunConfig(RunConfig):
    """A run of an LLM recogniser."""

    model: AsrLlmModelConfig
    data: AsrLlmDataConfig

    @model_validator(mode="after")
    def _settings_have_one_home(self) -> Self:
        """Settings that this family would not read are refused."""
        self.refuse_unread(self.data.batches.homes("data.eval_padded_seconds"))
        return self

    @model_validator(mode="after")
    def _precision_and_decay_fit(self) -> Self:
        training, decoder = self.training, self.model.decoder
        for flag, other in (("bf16", "float16"), ("fp16", "bfloat16")):
            if getattr(training, flag) and decoder.dtype == other:
                raise ValueError(
                    f"training.{flag}=true and model.decoder.dtype={other} contradict each other: "
                    "store and compute in one kind of half precision"
                )
        if self.model.recipe == "lora" and training.weight_decay:
            raise ValueError(
                f"training.weight_decay={training.weight_decay:g}: recipe 'lora' trains adapters "
                "without decay, which would pull the model back to its base. Decay of the "
                "projector is model.projector.weight_decay"
            )
        if self.data.packing in ("none", "rows") and decoder.attention == "flash_attention_2":
            raise ValueError(
                f"data.packing={self.data.packing} and decoder.attention=flash_attention_2 "
                "contradict each other: set data.packing=batch (or auto), or attention=auto"
            )
        return self
