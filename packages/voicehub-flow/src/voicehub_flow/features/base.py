"""What extractors are to the job that runs them and to the model that is trained on their work."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor

if TYPE_CHECKING:
    import numpy as np

    from voicehub_flow.vocoders.settings import VocoderSettings

Kind = Literal["audio", "text", "clip", "sync"]
SETTINGS_FILE = "extractor.json"


class Extractor(ABC):
    """Turns one kind of input into features; never trained together with a model.

    Attributes:
        name: in the registry.
        source: directory it was read from, or what it says of itself.
        options: what it was built with, for one that is built again from its own directory.
    """

    name: ClassVar[str]
    source: str
    options: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What decides the features beside weights, as JSON values."""

    def weights_digest(self) -> str:
        """SHA-256 (hex) of its weights; empty where it has none."""
        return ""

    def save(self, directory: Path) -> bool:
        """Write what ``load`` of the registry reads; False where it stays where it lies.

        Pretrained ones stay: a store names their directory, and refuses another's weights.
        """
        return False

    def identity(self) -> dict[str, Any]:
        """Name, settings and ``sha256``: extractors of equal identity give equal features."""
        found = {"name": self.name, **self.settings()}
        digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode())
        digest.update(self.weights_digest().encode())
        return {**found, "sha256": digest.hexdigest()}


class AudioExtractor(Extractor):
    """Waveforms to latents and back.

    Attributes:
        sample_rate: Hz.
        latent_dim: channels.
    """

    sample_rate: int
    latent_dim: int

    @abstractmethod
    def frames(self, samples: int) -> int:
        """Frames of so many samples, exact."""

    @abstractmethod
    def encode(self, audio: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the latents' distribution.

        Args:
            audio: float32 (samples,) at ``sample_rate``.

        Returns:
            float32 (frames, latent_dim) each; deviations are 0 where the extractor is sure.
        """

    @abstractmethod
    def decode(self, latents: Tensor, vocoder: VocoderSettings) -> Tensor:
        """Waveform, float32 (samples,), of latents (frames, latent_dim).

        Args:
            latents: not normalised.
            vocoder: speaks mel frames, for extractors whose latents stand for those.
        """


class TextExtractor(Extractor):
    """Texts to a fixed number of tokens each.

    Attributes:
        tokens, channels: of every text.
    """

    tokens: int
    channels: int

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Tensor:
        """float32 (texts, tokens, channels)."""


class VideoExtractor(Extractor):
    """Frames of a video to one vector each.

    Attributes:
        fps: frames a second that it wants.
        channels: of a frame's features.
    """

    fps: float
    channels: int

    @abstractmethod
    def encode(self, frames: np.ndarray[Any, Any]) -> Tensor:
        """float32 (frames, channels) of uint8 (frames, height, width, 3)."""
