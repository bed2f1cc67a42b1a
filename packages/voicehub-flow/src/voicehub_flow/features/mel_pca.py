"""Audio latents that need no download: probabilistic PCA of log-mel frames, fitted on the corpus.

Tipping and Bishop (1999): frames x = W z + mu + noise, with W = U (L - s^2)^(1/2) of the leading
eigenvectors U and eigenvalues L of the covariance, and s^2 the mean of those that are left out. A
frame's latent is Gaussian, with mean L^-1 (L - s^2)^(1/2) U^T (x - mu) and variance s^2 L^-1: what
a variational autoencoder would have to learn is in closed form here, and so is the way back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor
from typing_extensions import Self

from voicehub.errors import CheckpointError, ConfigurationError, DataError
from voicehub_flow.features.base import AudioExtractor
from voicehub_flow.features.registry import read_settings, write_settings
from voicehub_flow.mel import MelSettings
from voicehub_flow.vocoders.settings import VocoderSettings

WEIGHTS_FILE = "pca.safetensors"
_LEAST_VARIANCE = 1e-8


class MelPcaSettings(MelSettings):
    """Mel settings, here by default for speech at 16 kHz, and the number of channels.

    Attributes:
        latent_dim: leading components; at most ``n_mels``.
    """

    sample_rate: int = Field(default=16000, gt=0)
    n_fft: int = Field(default=512, gt=0)
    hop_length: int = Field(default=200, gt=0)
    n_mels: int = Field(default=64, gt=0)
    latent_dim: int = Field(default=20, gt=0)

    @model_validator(mode="after")
    def _fewer_than_bins(self) -> Self:
        if self.latent_dim > self.n_mels:
            raise ValueError(f"latent_dim {self.latent_dim} is over n_mels {self.n_mels}")
        return self

    @property
    def mel(self) -> MelSettings:
        """Those of the frames alone."""
        return MelSettings(**self.model_dump(exclude={"latent_dim"}))


class MelPca(AudioExtractor):
    """The extractor in memory.

    Args:
        settings: of frames and channels.
        mean: float64 (n_mels,).
        directions: float64 (n_mels, latent_dim), leading eigenvectors.
        variances: float64 (latent_dim,), their eigenvalues.
        noise: s^2.
        source: where it was read from.
    """

    name = "log-mel-pca"

    def __init__(
        self,
        settings: MelPcaSettings,
        mean: Tensor,
        directions: Tensor,
        variances: Tensor,
        noise: float,
        source: str = "(fitted)",
    ) -> None:
        self.config, self.source = settings, source
        self.sample_rate, self.latent_dim = settings.sample_rate, settings.latent_dim
        self._weights = {
            "mean": mean,
            "directions": directions,
            "variances": variances,
            "noise": torch.tensor(noise, dtype=torch.float64),
        }
        self._features = settings.mel.build()
        root = (variances - noise).clamp(min=0).sqrt()
        self._into = (directions * (root / variances)).T
        self._back = (directions * root).T
        self._deviation = (noise / variances).sqrt()
        self._mean = mean

    @classmethod
    def fit(cls, clips: Iterable[Tensor], settings: MelPcaSettings) -> MelPca:
        """Fit to clips, float32 (samples,) each; memory does not grow with their number.

        Raises:
            DataError: there are fewer frames than bins.
        """
        features = settings.mel.build()
        count, total = 0, torch.zeros(settings.n_mels, dtype=torch.float64)
        products = torch.zeros(settings.n_mels, settings.n_mels, dtype=torch.float64)
        middle: Tensor | None = None
        for clip in clips:
            frames = features(clip).double()
            if middle is None:  # near the mean, so that products do not cancel
                middle = frames.mean(0)
            frames = frames - middle
            count += len(frames)
            total += frames.sum(0)
            products += frames.T @ frames
        if middle is None or count <= settings.n_mels:
            raise DataError(
                f"{count} frames are too few to fit {settings.n_mels} mel bins; give more audio."
            )
        mean = total / count
        values, vectors = torch.linalg.eigh(products / count - torch.outer(mean, mean))
        values = values.flip(0).clamp(min=_LEAST_VARIANCE)
        vectors = _signed(vectors.flip(1))
        kept = settings.latent_dim
        left = values[kept:]
        noise = float(left.mean()) if len(left) else 0.0
        return cls(
            settings, middle + mean, vectors[:, :kept].contiguous(), values[:kept].clone(), noise
        )

    def frames(self, samples: int) -> int:
        return self._features.num_frames(samples)

    def encode(self, audio: Tensor) -> tuple[Tensor, Tensor]:
        frames = self._features(audio.float()).double()
        mean = (frames - self._mean) @ self._into.T
        return mean.float(), self._deviation.expand_as(mean).float().contiguous()

    def log_mel(self, latents: Tensor) -> Tensor:
        """Frames, float32 (frames, n_mels), that latents (frames, latent_dim) stand for."""
        back = latents.double() @ self._back.to(latents.device) + self._mean.to(latents.device)
        return back.float()

    def decode(self, latents: Tensor, vocoder: VocoderSettings) -> Tensor:
        from voicehub_flow.vocoders.loading import load_vocoder

        speak = load_vocoder(vocoder, self.config.mel, device=str(latents.device))
        return speak(self.log_mel(latents))

    def settings(self) -> dict[str, Any]:
        return {**self.config.resolved, "latent_dim": self.latent_dim}

    def weights_digest(self) -> str:
        digest = hashlib.sha256()
        for name, tensor in sorted(self._weights.items()):
            digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def save(self, directory: Path) -> bool:
        from safetensors.torch import save_file

        write_settings(directory, self.name, self.config.model_dump(mode="json"))
        save_file(self._weights, directory / WEIGHTS_FILE)
        return True


def load(directory: Path) -> MelPca:
    """Read what ``save`` wrote.

    Raises:
        ConfigurationError: the directory holds none.
        CheckpointError: its weights are damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    settings = MelPcaSettings.load(read_settings(directory, MelPca.name))
    try:
        held = load_file(directory / WEIGHTS_FILE)
        noise = float(held["noise"])
        mean, directions, variances = (held[k] for k in ("mean", "directions", "variances"))
    except (OSError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{directory / WEIGHTS_FILE}: cannot be read ({error}).") from error
    return MelPca(settings, mean, directions, variances, noise, str(directory))


def build(directory: Path | None, settings: Mapping[str, Any]) -> MelPca:
    """For the registry: one that was fitted. The job fits one where no directory is named."""
    if directory is None:
        raise ConfigurationError(f"the extractor {MelPca.name!r} is fitted before it is built.")
    found = load(directory)
    given = {**found.config.model_dump(), **settings}
    if MelPcaSettings.load(given).model_dump() != found.config.model_dump():
        raise ConfigurationError(
            f"{directory}: was fitted with other settings ({found.config.model_dump()}); leave the "
            "options out, or fit it anew."
        )
    return found


def _signed(vectors: Tensor) -> Tensor:
    """Eigenvectors with their largest component positive: their signs are else arbitrary."""
    place = vectors.abs().argmax(0, keepdim=True)
    return vectors * vectors.gather(0, place).sign()
