"""What every codec is to the rest of the family."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from torch import Tensor

from voicehub.errors import ConfigurationError


class AudioCodec(ABC):
    """Waveforms to discrete codes and back; never trained together with a language model.

    Attributes:
        kind: ``corpus``, ``encodec``, ``dac``, ``mimi`` or ``xcodec2``.
        source: local directory or Hub id it was read from.
        sample_rate: Hz.
        hop_length: samples a frame stands for.
        num_codebooks: codes a frame.
        codebook_size: values of a code.
    """

    kind: str
    source: str
    sample_rate: int
    hop_length: int
    num_codebooks: int
    codebook_size: int

    @abstractmethod
    def encode(self, audio: Tensor) -> Tensor:
        """Codes of one clip.

        Args:
            audio: float32 (samples,) at ``sample_rate``.

        Returns:
            int64 (codebooks, frames), on the CPU.
        """

    @abstractmethod
    def decode(self, codes: Tensor) -> Tensor:
        """Waveform, float32 (samples,) on the CPU, of codes int64 (codebooks, frames)."""

    @abstractmethod
    def weights_digest(self) -> str:
        """SHA-256 (hex) of everything that decides which codes come out."""

    @property
    def frame_rate(self) -> float:
        """Frames a second."""
        return self.sample_rate / self.hop_length

    def settings(self) -> dict[str, Any]:
        """What beside the weights decides codes and their shape, as JSON values."""
        return {
            "kind": self.kind,
            "sample_rate": self.sample_rate,
            "hop_length": self.hop_length,
            "num_codebooks": self.num_codebooks,
            "codebook_size": self.codebook_size,
        }

    def identity(self) -> dict[str, Any]:
        """``settings`` and ``sha256``: codecs of equal identity give equal codes."""
        digest = hashlib.sha256(self.weights_digest().encode())
        digest.update(json.dumps(self.settings(), sort_keys=True).encode())
        return {**self.settings(), "sha256": digest.hexdigest()}

    def require_codes(self, codes: Tensor) -> None:
        """Refuse codes of another shape or range.

        Raises:
            ConfigurationError: the message says what was expected.
        """
        books, size = self.num_codebooks, self.codebook_size
        if codes.dim() != 2 or codes.shape[0] != books:
            raise ConfigurationError(
                f"the codec {self.source} decodes codes of shape ({books}, frames), got "
                f"{tuple(codes.shape)}."
            )
        if codes.numel() and not (int(codes.min()) >= 0 and int(codes.max()) < size):
            raise ConfigurationError(
                f"the codec {self.source} has codes from 0 to {size - 1}, got {int(codes.min())} "
                f"to {int(codes.max())}."
            )


def require_identity(codec: AudioCodec, expected: dict[str, Any], where: str) -> None:
    """Refuse a codec other than the one that a model was trained with.

    Raises:
        ConfigurationError: their hashes differ; the message lists what else does.
    """
    found = codec.identity()
    if found["sha256"] == expected["sha256"]:
        return
    apart = [
        f"{name} {expected.get(name)} became {value}"
        for name, value in found.items()
        if name != "sha256" and expected.get(name) != value
    ]
    raise ConfigurationError(
        f"{where} speaks codes of the codec with SHA-256 {expected['sha256'][:16]}…, but "
        f"{codec.source} is {found['sha256'][:16]}… ({'; '.join(apart) or 'other weights'}). Its "
        "codes would mean other sounds: give the codec that the model was trained with."
    )


def is_directory(source: str) -> bool:
    """Whether a codec is named by a local directory."""
    return Path(source).is_dir()
