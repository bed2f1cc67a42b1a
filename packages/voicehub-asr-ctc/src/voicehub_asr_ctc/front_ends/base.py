"""What a data set and a recogniser need to know of a model's input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from torch import Tensor

from voicehub_data.audio import extended

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Prepared(NamedTuple):
    """The model's input for one utterance, unpadded.

    Attributes:
        rows: float32 (samples,), or (feature frames, bins).
        valid: rows that the attention mask covers; processors append a masked one to some clips.
        frames: frames that valid rows give: what labels are aligned with.
        produced: frames that the model gives for all rows of this utterance alone.
    """

    rows: Tensor
    valid: int
    frames: int
    produced: int


class FrontEnd(ABC):
    """Turns audio into the input of a model.

    Attributes:
        sample_rate: Hz of the audio it takes.
        hop_samples: samples from one output frame to the next.
        minimum_samples: shortest audio the model takes; shorter clips are extended with silence.
        masks: whether SpecAugment masks the features or the model's first hidden states.
        hidden_size: width of those hidden states; 0 where features are masked.
        masks_rows: whether processors append masked rows, which give frames of their own.
    """

    sample_rate: int
    hop_samples: int
    minimum_samples: int
    masks: Literal["features", "hidden"]
    hidden_size: int = 0
    masks_rows: bool = False

    @abstractmethod
    def frames(self, samples: int) -> int:
        """Return the frames that labels can be aligned with, for a number of samples: exact."""

    @abstractmethod
    def _prepare(self, audio: NDArray[np.float32]) -> Prepared:
        """Prepare audio of at least ``minimum_samples``."""

    def mask_frames(self, prepared: Prepared) -> int:
        """Return the hidden frames that time masks cover; the output frames by default."""
        return prepared.frames

    @abstractmethod
    def batch(self, items: Sequence[Prepared]) -> dict[str, Any]:
        """Pad to the longest and return the keyword arguments of the model's forward."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return JSON that changes when prepared inputs would."""

    def prepare(self, audio: NDArray[np.float32]) -> Prepared:
        """Prepare mono audio (samples,), extended with silence where it is too short."""
        return self._prepare(extended(audio, self.minimum_samples))

    def padded_frames(self, samples: int) -> int:
        """Return ``frames`` of a clip after ``prepare`` extended it."""
        return self.frames(max(samples, self.minimum_samples))

    @property
    def frame_seconds(self) -> float:
        """Seconds from one output frame to the next."""
        return self.hop_samples / self.sample_rate
