"""Configuration of ``voicehub train`` for LLM recognisers: what presets compose to."""

from __future__ import annotations

from voicehub_asr_llm.config.data import AsrLlmDataConfig
from voicehub_asr_llm.config.model import AsrLlmModelConfig
from voicehub_asr_llm.config.parts import (
    DecoderConfig,
    EncoderConfig,
    GenerationConfig,
    LoraConfig,
    PromptConfig,
)
from voicehub_asr_llm.config.projectors import (
    MlpProjectorConfig,
    MoeProjectorConfig,
    ProjectorConfig,
    QFormerProjectorConfig,
)
from voicehub_asr_llm.config.run import AsrLlmRunConfig
from voicehub_asr_llm.config.sources import SourcesConfig, SpeechSourceConfig

__all__ = [
    "AsrLlmDataConfig",
    "AsrLlmModelConfig",
    "AsrLlmRunConfig",
    "DecoderConfig",
    "EncoderConfig",
    "GenerationConfig",
    "LoraConfig",
    "MlpProjectorConfig",
    "MoeProjectorConfig",
    "ProjectorConfig",
    "PromptConfig",
    "QFormerProjectorConfig",
    "SourcesConfig",
    "SpeechSourceConfig",
]
