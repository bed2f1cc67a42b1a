"""Configuration of ``voicehub train`` for VITS: what presets compose to."""

from __future__ import annotations

from voicehub_vits.config.data import VitsDataConfig
from voicehub_vits.config.model import PARTS, VitsModelConfig
from voicehub_vits.config.parts import (
    ArchitectureConfig,
    DiscriminatorConfig,
    DropoutConfig,
    DurationDiscriminatorConfig,
    LossWeights,
)
from voicehub_vits.config.run import VitsEvalConfig, VitsRunConfig
from voicehub_vits.config.text import CharactersTextConfig, CheckpointTextConfig, PhonemesTextConfig

__all__ = [
    "PARTS",
    "ArchitectureConfig",
    "CharactersTextConfig",
    "CheckpointTextConfig",
    "DiscriminatorConfig",
    "DropoutConfig",
    "DurationDiscriminatorConfig",
    "LossWeights",
    "PhonemesTextConfig",
    "VitsDataConfig",
    "VitsEvalConfig",
    "VitsModelConfig",
    "VitsRunConfig",
]
