"""From settings to a vocoder."""

from __future__ import annotations

import logging

from voicehub.errors import ConfigurationError
from voicehub_flow.mel import MelSettings
from voicehub_flow.vocoders.base import Vocoder
from voicehub_flow.vocoders.griffin_lim import GriffinLimVocoder
from voicehub_flow.vocoders.settings import VocoderSettings

logger = logging.getLogger(__name__)


def load_vocoder(settings: VocoderSettings, mel: MelSettings, *, device: str = "cpu") -> Vocoder:
    """Build the vocoder that settings name, for the frames that a model emits.

    Args:
        settings: which one.
        mel: of the model.
        device: where its weights go.

    Raises:
        ConfigurationError: its directory is missing or incomplete, or it reads other frames.
        CheckpointError: its weights do not fit its configuration.
    """
    if settings.name == "griffin-lim":
        return GriffinLimVocoder(
            mel, iterations=settings.iterations, momentum=settings.momentum, seed=settings.seed
        )
    raise ConfigurationError(f"unknown vocoder {settings.name!r}.")
