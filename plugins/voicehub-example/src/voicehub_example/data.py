"""Pairs of a noisy and a clean log-mel spectrogram of one sound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from voicehub.data.keyed_random import SampleKey, torch_generator
from voicehub.errors import DataError

from voicehub_example.features import SAMPLE_RATE, log_mel, read_wav


class NoisyClips:
    """Clean clips (samples,), with noise that every draw of a clip gets anew.

    ``get_item`` draws from a generator made of the sample's key, so that the noise depends
    neither on the number of workers nor on where a resumed run began.
    """

    def __init__(self, clips: Sequence[Tensor], *, bands: int, noise: float) -> None:
        self.clips, self.bands, self.noise = clips, bands, noise

    def __len__(self) -> int:
        return len(self.clips)

    def get_item(self, index: int, key: SampleKey) -> dict[str, Any]:
        """Return ``noisy`` and ``clean``, each (frames, bands)."""
        clean = self.clips[index]
        noise = torch.randn(len(clean), generator=torch_generator(*key, "noise")) * self.noise
        return {"noisy": log_mel(clean + noise, self.bands), "clean": log_mel(clean, self.bands)}

    def resume_fingerprint(self) -> dict[str, Any]:
        """What an exact resume must find unchanged."""
        samples = [len(clip) for clip in self.clips]
        return {"bands": self.bands, "noise": self.noise, "samples": samples}


def load_clips(folder: Path) -> list[Tensor]:
    """Return the samples of every WAV file of a folder, by name."""
    paths = sorted(folder.glob("*.wav"))
    if not paths:
        raise DataError(f"{folder} holds no WAV file. Give another folder, or none.")
    return [read_wav(path) for path in paths]


def synthetic_clips(count: int, seed: int) -> list[Tensor]:
    """Return voiced sounds of 0.3 to 1 second, a function of the arguments."""
    lengths = torch.randint(4_800, 16_000, (count,), generator=torch_generator("lengths", seed))
    return [synthetic_clip(int(n), seed * 10_000 + i) for i, n in enumerate(lengths)]


def synthetic_clip(samples: int, seed: int) -> Tensor:
    """Return a harmonic sound (samples,) of its own loudness, whose pitch glides."""
    start, end, level = torch.rand(3, generator=torch_generator("sound", seed)).tolist()
    pitch = torch.linspace(100 + 300 * start, 100 + 300 * end, samples)
    phase = pitch.cumsum(0) * (2 * torch.pi / SAMPLE_RATE)
    return 0.3 * 0.03**level * torch.stack([torch.sin(k * phase) / k for k in range(1, 9)]).sum(0)
