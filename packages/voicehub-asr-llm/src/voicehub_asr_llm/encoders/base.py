"""What the rest of the package needs to know of an encoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from voicehub_data.tensors import pad_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Prepared(NamedTuple):
    """An encoder's input for one utterance, unpadded.

    Attributes:
        rows: float32 (samples,) or (rows, values).
        valid: leading rows that hold audio.
        frames: frames that the encoder gives for them.
    """

    rows: Tensor
    valid: int
    frames: int


class FrontEnd(ABC):
    """Turns audio into the input of an encoder.

    Attributes:
        sample_rate: Hz of the audio it takes.
        maximum_samples: longest audio that one forward sees; None where there is no limit.
        padding_value: of rows behind an utterance.
        features: whether rows are features over time, which SpecAugment can mask.
    """

    sample_rate: int
    maximum_samples: int | None = None
    padding_value: float = 0.0
    features: bool = True

    @abstractmethod
    def frames(self, samples: int) -> int:
        """Return the frames that the encoder gives for a number of samples: exact."""

    @abstractmethod
    def minimum_samples(self, frames: int) -> int:
        """Return the shortest audio that gives so many frames."""

    @abstractmethod
    def prepare(self, audio: NDArray[np.float32]) -> Prepared:
        """Prepare mono audio (samples,) that is long enough for a frame."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return JSON that changes when prepared inputs would."""

    def batch(self, items: Sequence[Prepared]) -> dict[str, Tensor]:
        """Return ``audio``, padded rows, and ``audio_lengths``, int64 (B,)."""
        lengths = torch.tensor([item.valid for item in items], dtype=torch.long)
        rows = pad_rows([item.rows for item in items], self.padding_value)
        return {"audio": rows, "audio_lengths": lengths}


class Encoder(nn.Module, ABC):
    """From prepared audio to frames.

    Attributes:
        hidden_size: width of a frame.
        model: the module of the library it comes from.
    """

    hidden_size: int
    model: nn.Module

    @abstractmethod
    def output_frames(self, rows: int) -> int:
        """Return the frames that so many valid rows give, by the formula of the loaded model."""

    @abstractmethod
    def forward(self, audio: Tensor, audio_lengths: Tensor, rows: Sequence[int]) -> Tensor:
        """Encode.

        Args:
            audio: padded rows, (B, rows) or (B, rows, values).
            audio_lengths: valid rows, int64 (B,).
            rows: the same as integers, so that nothing waits for a device.

        Returns:
            (B, frames of the longest, hidden size); what lies behind an utterance's own frames has
            no meaning.
        """

    @abstractmethod
    def layers(self) -> list[nn.Module]:
        """The layers, from the input up."""

    @abstractmethod
    def tail(self) -> list[nn.Module]:
        """What stands behind the last layer and trains with it."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its floating weights."""
        return next(p.dtype for p in self.parameters() if p.is_floating_point())


class EncoderSource(ABC):
    """An encoder that is described, not loaded.

    Attributes:
        front_end: audio to its input.
        hidden_size: width of a frame.
    """

    front_end: FrontEnd
    hidden_size: int

    @abstractmethod
    def load(self) -> Encoder:
        """Load it, in evaluation mode, on the CPU."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Which checkpoint it is, exactly: JSON."""
