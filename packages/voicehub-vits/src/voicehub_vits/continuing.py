"""A run that goes on from an artifact of an earlier run: what must be as it was there."""

from __future__ import annotations

from voicehub.errors import ConfigurationError
from voicehub_vits.config import VitsModelConfig
from voicehub_vits.data.voices import Voices
from voicehub_vits.model import VitsTTS


def artifact_voices(config: VitsModelConfig) -> Voices | None:
    """The voices of the artifact that ``config.path`` names; None for other starts.

    Raises:
        ConfigurationError: the run asks for other tables or discriminators than the artifact has;
            the message says what to set.
    """
    if config.path is None:
        return None
    wrapper = VitsTTS(config.path)
    if not wrapper.is_artifact:
        return None
    _check_tables(config, wrapper.voices)
    if wrapper.has_adversaries and not config.generator_only:
        _check_discriminators(config, wrapper.config)
    return wrapper.voices


def _check_tables(config: VitsModelConfig, voices: Voices) -> None:
    if config.speaker_table == "new":
        raise ConfigurationError(
            f"{config.path} is an artifact of VoiceHub, whose speaker table is kept. For "
            "model.speaker_table=new start from its native_export."
        )
    if bool(voices.languages) != config.language_conditioning:
        has, wanted = ("a", "true") if voices.languages else ("no", "false")
        raise ConfigurationError(
            f"{config.path} has {has} language table: set model.language_conditioning={wanted}."
        )


def _check_discriminators(config: VitsModelConfig, earlier: VitsModelConfig) -> None:
    apart = []
    if config.discriminator.width != earlier.discriminator.width:
        apart.append(f"model.discriminator.width={earlier.discriminator.width:g}")
    if config.discriminator.periods != earlier.discriminator.periods:
        periods = ",".join(map(str, earlier.discriminator.periods))
        apart.append(f"model.discriminator.periods=[{periods}]")
    if config.duration_discriminator != earlier.duration_discriminator:
        was = earlier.duration_discriminator
        apart.append(
            "model.duration_discriminator=null"
            if was is None
            else f"model.duration_discriminator.channels={was.channels}"
        )
    if apart:
        raise ConfigurationError(
            f"{config.path} holds trained discriminators of other sizes than this run asks for. "
            f"To go on with them: {' '.join(apart)}. To begin with new ones, start from its "
            "native_export."
        )
