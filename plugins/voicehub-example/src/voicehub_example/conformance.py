"""A tiny model and samples for the conformance kit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from voicehub.data.keyed_random import SampleKey
from voicehub.testing import ConformanceCase

from voicehub_example.adapter import DenoiserAdapter
from voicehub_example.data import NoisyClips, synthetic_clip, synthetic_clips
from voicehub_example.features import HOP, SAMPLE_RATE, log_mel, read_wav
from voicehub_example.model import DenoiserModel
from voicehub_example.specs import DENOISER

BANDS = 8


class DenoiserCase(ConformanceCase):
    """Lengths are frames."""

    model_type = DENOISER.model_type
    lengths = (6, 24)
    sample_rate = SAMPLE_RATE

    def build(self, *, dropout: float = 0.0) -> DenoiserAdapter:
        """Return a denoiser of 8 bands."""
        model = DenoiserModel("tiny", bands=BANDS, channels=16, layers=2, dropout=dropout)
        return DenoiserAdapter(model, DENOISER)

    def item(self, length: int, seed: int) -> dict[str, Any]:
        """Return a pair of spectrograms of so many frames."""
        clip = synthetic_clip((length - 1) * HOP, seed)
        return NoisyClips([clip], bands=BANDS, noise=0.05).get_item(0, SampleKey(seed, 0, 0, 0))

    def shuffled(self, items: Sequence[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
        """Give each clip the clean spectrogram of another, repeated or cut to its length."""
        moved = [*items[1:], items[0]]
        return [
            {**item, "clean": _fitted(other["clean"], len(item["clean"]))}
            for item, other in zip(items, moved, strict=True)
        ]

    def dataset(self, size: int, seed: int) -> NoisyClips:
        """Return the real data set, noise included."""
        return NoisyClips(synthetic_clips(size, seed), bands=BANDS, noise=0.05)

    def output_lengths(self, adapter: Any, inputs: Any) -> Tensor:
        """Return one output for every valid frame."""
        return inputs["mask"].sum(1)

    def read_audio(self, path: Path) -> Tensor:
        """Return the spectrogram of a file."""
        return log_mel(read_wav(path), BANDS)


def _fitted(value: Tensor, length: int) -> Tensor:
    return torch.cat([value] * (length // len(value) + 1))[:length]
