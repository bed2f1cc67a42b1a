"""A codec fitted to a corpus in seconds: residual k-means over log-mel frames.

It needs no download. Its speech sounds as Griffin-Lim does; it is meant for tests, for small
experiments, and to hear what a language model has learnt before a large codec is paid for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from voicehub.errors import CheckpointError, ConfigurationError, DataError
from voicehub.trainer.section import Section
from voicehub_codec_lm.codecs.base import AudioCodec
from voicehub_codec_lm.codecs.quantizer import fit_residual, quantize, reconstruct
from voicehub_data.features import LogMel, griffin_lim, mel_to_magnitude

CONFIG_FILE, WEIGHTS_FILE = "codec.json", "codec.safetensors"
_FORMAT = "voicehub-corpus-codec"
#: Frames used to fit; more change the centres little.
_MOST_FRAMES = 400_000


class CorpusCodecConfig(Section):
    """Settings of the corpus codec.

    Attributes:
        sample_rate: Hz.
        hop_length, n_fft: samples.
        n_mels: bins of the log-mel frames.
        num_codebooks, codebook_size: of the residual quantiser.
        iterations: of k-means.
        griffin_lim_iterations: of the way back to a waveform.
        seed: of k-means, and of the phases of Griffin-Lim.
    """

    sample_rate: int = Field(default=8000, gt=0)
    hop_length: int = Field(default=96, gt=0)
    n_fft: int = Field(default=256, gt=0)
    n_mels: int = Field(default=40, gt=0)
    num_codebooks: int = Field(default=4, ge=1, le=16)
    codebook_size: int = Field(default=256, ge=2)
    iterations: int = Field(default=25, ge=1)
    griffin_lim_iterations: int = Field(default=48, ge=1)
    seed: int = 0


class CorpusCodec(AudioCodec):
    """The codec in memory.

    Args:
        config: settings.
        codebooks: float32 (codebooks, size, n_mels).
        source: where it was read from.
    """

    kind = "corpus"

    def __init__(
        self, config: CorpusCodecConfig, codebooks: Tensor, source: str = "(fitted)"
    ) -> None:
        self.config, self.codebooks, self.source = config, codebooks, source
        self.sample_rate, self.hop_length = config.sample_rate, config.hop_length
        self.num_codebooks, self.codebook_size = config.num_codebooks, config.codebook_size
        self._features = _features(config)

    @classmethod
    def fit(cls, clips: Iterable[Tensor], config: CorpusCodecConfig) -> CorpusCodec:
        """Fit codebooks to clips, each float32 (samples,) at the codec's rate.

        Raises:
            DataError: there are too few frames.
        """
        features = _features(config)
        parts = [features(clip) for clip in clips if len(clip)]
        if not parts:
            raise DataError("there is no audio to fit a codec to.")
        frames = torch.cat(parts)
        if len(frames) > _MOST_FRAMES:
            frames = frames[torch.linspace(0, len(frames) - 1, _MOST_FRAMES).long()]
        codebooks = fit_residual(
            frames,
            config.num_codebooks,
            config.codebook_size,
            iterations=config.iterations,
            seed=config.seed,
        )
        return cls(config, codebooks)

    def encode(self, audio: Tensor) -> Tensor:
        """Codes int64 (codebooks, 1 + samples // hop_length) of audio (samples,)."""
        return quantize(self._features(audio.float()), self.codebooks)

    def decode(self, codes: Tensor) -> Tensor:
        """Waveform float32 ((frames - 1) * hop_length,)."""
        self.require_codes(codes)
        if codes.shape[1] < 2:
            return torch.zeros(0)
        mel = reconstruct(codes, self.codebooks).exp()
        features = self._features
        magnitude = mel_to_magnitude(mel, features.filterbank, power=features.power)
        wave = griffin_lim(
            magnitude,
            self.config.n_fft,
            self.hop_length,
            features.window,
            iterations=self.config.griffin_lim_iterations,
            seed=self.config.seed,
        )
        return wave.clamp(-1.0, 1.0)

    def weights_digest(self) -> str:
        digest = hashlib.sha256(self.codebooks.contiguous().numpy().tobytes())
        digest.update(json.dumps(self.config.model_dump(mode="json"), sort_keys=True).encode())
        return digest.hexdigest()

    def save(self, directory: Path) -> None:
        """Write settings and codebooks."""
        from safetensors.torch import save_file

        directory.mkdir(parents=True, exist_ok=True)
        save_file({"codebooks": self.codebooks.contiguous()}, directory / WEIGHTS_FILE)
        stored: dict[str, Any] = {
            "format": _FORMAT,
            "config": self.config.model_dump(mode="json"),
            "sha256": self.identity()["sha256"],
        }
        (directory / CONFIG_FILE).write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> CorpusCodec:
        """Read what ``save`` wrote.

        Raises:
            ConfigurationError: the directory holds no codec of ours.
            CheckpointError: its files are damaged, or do not belong together.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = directory / CONFIG_FILE
        if not path.is_file():
            raise ConfigurationError(
                f"{directory} holds no {CONFIG_FILE}: it is no corpus codec. Fit one with: "
                f"voicehub codec fit --data MANIFEST --out {directory}"
            )
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            codebooks = load_file(directory / WEIGHTS_FILE)["codebooks"]
            config = CorpusCodecConfig.model_validate(stored["config"])
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise CheckpointError(f"{directory} cannot be read as a codec: {error}") from error
        codec = cls(config, codebooks, str(directory))
        if codec.identity()["sha256"] != stored.get("sha256"):
            raise CheckpointError(
                f"{directory}: {WEIGHTS_FILE} and {CONFIG_FILE} do not belong together, or one was "
                "changed; fit the codec again."
            )
        return codec


def _features(config: CorpusCodecConfig) -> LogMel:
    return LogMel(
        config.sample_rate,
        config.n_fft,
        config.hop_length,
        config.n_mels,
    )
