"""What a data set and a wrapper need to know of a model's input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
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
        missing = self.minimum_samples - len(audio)
        if missing > 0:
            audio = np.concatenate([audio, np.zeros(missing, dtype=np.float32)])
        return self._prepare(audio)

    def batch(self, items: Sequence[Prepared]) -> dict[str, Any]:
        """Return the network's keyword arguments: padded rows, and ``lengths``, int64 (B,)."""
        lengths = torch.tensor([item.valid for item in items], dtype=torch.long)
        return {self.input_name: pad_rows(items, self.padding_value), "lengths": lengths}


def pad_rows(items: Sequence[Prepared], value: float = 0.0) -> Tensor:
    """Stack rows of unequal length, filled with ``value`` on the right."""
    longest = max(len(item.rows) for item in items)
    first = items[0].rows
    padded = first.new_full((len(items), longest, *first.shape[1:]), value)
    for item, target in zip(items, padded, strict=True):
        target[: len(item.rows)] = item.rows
    return padded


def as_tensor(audio: NDArray[np.float32]) -> Tensor:
    """Return the samples as a tensor; a copy where they come from a cache that is read only."""
    return torch.from_numpy(audio if audio.flags.writeable else audio.copy())
