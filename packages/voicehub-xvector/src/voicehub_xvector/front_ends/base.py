"""What a data set and a wrapper need to know of a model's input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from voicehub_data.audio import extended
from voicehub_data.tensors import pad_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Prepared(NamedTuple):
    """The model's input for one utterance, unpadded.

    Attributes:
        rows: float32 (samples,) or (frames, values).
        valid: leading rows that hold audio.
    """

    rows: Tensor
    valid: int


class FrontEnd(ABC):
    """Turns audio into the input of a network.

    Attributes:
        sample_rate: Hz of the audio it takes.
        minimum_samples: shortest audio the network takes; shorter clips are extended with silence.
        input_name: key of the batch under which the rows lie.
        masks: whether SpecAugment masks these features, or what the fuser gives.
        padding_value: of rows behind an utterance.
    """

    sample_rate: int
    minimum_samples: int
    input_name: str
    masks: Literal["features", "fused"] = "features"
    padding_value: float = 0.0

    @abstractmethod
    def _prepare(self, audio: NDArray[np.float32]) -> Prepared:
        """Prepare audio of at least ``minimum_samples``."""

    @abstractmethod
    def fused_frames(self, valid: int) -> int:
        """Return the frames that reach the head for so many valid rows: exact."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return JSON that changes when prepared inputs would."""

    def prepare(self, audio: NDArray[np.float32]) -> Prepared:
        """Prepare mono audio (samples,), extended with silence where it is too short."""
        return self._prepare(extended(audio, self.minimum_samples))

    def batch(self, items: Sequence[Prepared]) -> dict[str, Any]:
        """Return the network's keyword arguments: padded rows, and ``lengths``, int64 (B,)."""
        lengths = torch.tensor([item.valid for item in items], dtype=torch.long)
        rows = pad_rows([item.rows for item in items], self.padding_value)
        return {self.input_name: rows, "lengths": lengths}
