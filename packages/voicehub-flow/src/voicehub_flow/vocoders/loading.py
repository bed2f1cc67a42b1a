"""From settings to a vocoder."""

from __future__ import annotations

import logging
from collections.abc import Callable

from voicehub_flow.mel import MelSettings
from voicehub_flow.vocoders.base import Vocoder, require_same_mel
from voicehub_flow.vocoders.gan import load_bigvgan, load_hifigan
from voicehub_flow.vocoders.griffin_lim import GriffinLimVocoder
from voicehub_flow.vocoders.settings import VocoderSettings
from voicehub_flow.vocoders.vocos import load_vocos

logger = logging.getLogger(__name__)

_LOADERS: dict[str, Callable[..., Vocoder]] = {
    "vocos": load_vocos,
    "bigvgan": load_bigvgan,
    "hifigan": load_hifigan,
}


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
    assert settings.path is not None  # the settings have checked it
    vocoder = _LOADERS[settings.name](settings.path, settings.mel, device=device)
    require_same_mel(vocoder, mel)
    if vocoder.unstated:
        logger.warning(
            "The vocoder %r in %s does not say its %s: that they are those of the model (%s) was "
            "not checked. vocoder.mel can state them.",
            settings.name,
            settings.path,
            ", ".join(vocoder.unstated),
            ", ".join(f"{name} {mel.resolved[name]}" for name in vocoder.unstated),
        )
    return vocoder
