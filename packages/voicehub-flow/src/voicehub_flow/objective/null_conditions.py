"""Which conditions a training draw does not see, so that guidance has something to lead away from.

A policy draws booleans, true where the condition is replaced by the model's null one. Outside
training nothing is ever dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class InfillDrops(NamedTuple):
    """bool (count,) each, true where dropped."""

    audio: Tensor
    text: Tensor


class AudioVisualDrops(NamedTuple):
    """bool (count,) each, true where dropped; ``clip`` and ``sync`` are always equal."""

    clip: Tensor
    sync: Tensor
    text: Tensor


@dataclass(frozen=True)
class InfillNull:
    """Text and audio context of speech infilling, as F5-TTS drops them.

    The audio goes with ``audio_drop``; with ``joint_drop``, drawn apart, audio and text both go.
    Text is hence never missing beside audio: the null velocity of guidance sees neither.

    Attributes:
        audio_drop: probability of dropping the audio context alone.
        joint_drop: probability of dropping both.
    """

    audio_drop: float = 0.3
    joint_drop: float = 0.2

    def draw(
        self, count: int, generator: torch.Generator | None = None, *, training: bool = True
    ) -> InfillDrops:
        """Return what ``count`` items do not see; nothing is dropped outside training."""
        if not training:
            return InfillDrops(_kept(count), _kept(count))
        drawn = torch.rand(2, count, generator=generator)
        joint = drawn[1] < self.joint_drop
        return InfillDrops((drawn[0] < self.audio_drop) | joint, joint)


@dataclass(frozen=True)
class AudioVisualNull:
    """Video (clip and sync features, which go together) and text, dropped independently.

    Attributes:
        probability: of dropping the video, and of dropping the text.
    """

    probability: float = 0.1

    def draw(
        self, count: int, generator: torch.Generator | None = None, *, training: bool = True
    ) -> AudioVisualDrops:
        """Return what ``count`` items do not see; nothing is dropped outside training."""
        if not training:
            return AudioVisualDrops(_kept(count), _kept(count), _kept(count))
        drawn = torch.rand(2, count, generator=generator) < self.probability
        return AudioVisualDrops(drawn[0], drawn[0], drawn[1])


def _kept(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.bool)
