"""Audio latents of codecs of transformers, before their quantisers: EnCodec and DAC."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from voicehub.errors import ConfigurationError
from voicehub_flow.features.base import AudioExtractor
from voicehub_flow.features.pretrained import digest_of_model, load_frozen, require_directory
from voicehub_flow.vocoders.settings import VocoderSettings


class CodecLatents(AudioExtractor):
    """The encoder of a codec, and its decoder for the way back.

    A frame's latent is what the encoder says; its deviation is 0, since these encoders are
    deterministic.

    Args:
        name: in the registry.
        model: in evaluation mode.
        source: its directory.
    """

    architecture: ClassVar[str]

    def __init__(self, model: Any, source: str) -> None:
        config = model.config
        if getattr(config, "normalize", False):
            raise ConfigurationError(
                f"{source}: this EnCodec scales its input by a loudness that its latents do not "
                "hold (the 48 kHz model). Use the 24 kHz one."
            )
        self.model, self.source = model, source
        self.sample_rate = int(config.sampling_rate)
        self.hop_length = int(config.hop_length)
        self.latent_dim = int(config.hidden_size)

    def frames(self, samples: int) -> int:
        return -(-samples // self.hop_length)

    def encode(self, audio: Tensor) -> tuple[Tensor, Tensor]:
        missing = -len(audio) % self.hop_length
        padded = torch.nn.functional.pad(audio.float(), (0, missing))
        with torch.no_grad():
            found = self.model.encoder(padded.to(self.model.device)[None, None])
        mean = found[0].T.float().cpu().contiguous()
        return mean, torch.zeros_like(mean)

    def decode(self, latents: Tensor, vocoder: VocoderSettings) -> Tensor:
        with torch.no_grad():
            wave = self.model.decoder(latents.to(self.model.device).T[None])
        found: Tensor = wave.reshape(-1).float().clamp(-1.0, 1.0)
        return found

    def settings(self) -> dict[str, Any]:
        return {
            "sample_rate": self.sample_rate,
            "hop_length": self.hop_length,
            "latent_dim": self.latent_dim,
        }

    def weights_digest(self) -> str:
        return digest_of_model(self.source, self.model.config)


class EncodecLatents(CodecLatents):
    """EnCodec (Defossez et al. 2022)."""

    name = "encodec"
    architecture = "EncodecModel"


class DacLatents(CodecLatents):
    """DAC (Kumar et al. 2023)."""

    name = "dac"
    architecture = "DacModel"


def build_encodec(directory: Path | None, settings: Mapping[str, Any]) -> CodecLatents:
    """For the registry."""
    return _build(EncodecLatents, directory, settings)


def build_dac(directory: Path | None, settings: Mapping[str, Any]) -> CodecLatents:
    """For the registry."""
    return _build(DacLatents, directory, settings)


def _build(
    kind: type[CodecLatents], directory: Path | None, settings: Mapping[str, Any]
) -> CodecLatents:
    import transformers

    if settings:
        raise ConfigurationError(
            f"the extractor {kind.name!r} has no options, got {', '.join(sorted(settings))}."
        )
    found = require_directory(kind.name, directory)
    return kind(load_frozen(getattr(transformers, kind.architecture), found), str(found))
