"""Log-mel spectrograms, and WAV files of the one rate that they are made for."""

from __future__ import annotations

import functools
import wave
from pathlib import Path

import torch
from torch import Tensor
from voicehub.errors import DataError

SAMPLE_RATE = 16_000
WINDOW, HOP = 400, 160  # 25 and 10 milliseconds


@functools.lru_cache
def mel_filters(bands: int) -> Tensor:
    """Return triangular filters (frequencies, bands), equally spaced on the mel scale."""
    top = 2595 * torch.log10(torch.tensor(1 + SAMPLE_RATE / 2 / 700))
    edges = 700 * (10 ** (torch.linspace(0, float(top), bands + 2) / 2595) - 1)
    bins = torch.linspace(0, SAMPLE_RATE / 2, WINDOW // 2 + 1)[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)


def log_mel(samples: Tensor, bands: int) -> Tensor:
    """Return the log-mel spectrogram (1 + n // 160, bands) of samples (n,)."""
    window = torch.hann_window(WINDOW)
    spectrum = torch.stft(samples, WINDOW, HOP, window=window, return_complex=True)
    return (spectrum.abs().square().T @ mel_filters(bands)).clamp(min=1e-4).log10()


def read_wav(path: Path) -> Tensor:
    """Return the samples (n,) of a mono 16-bit WAV file, in [-1, 1).

    Raises:
        DataError: it has another rate or layout.
    """
    with wave.open(str(path), "rb") as file:
        found = (file.getframerate(), file.getnchannels(), file.getsampwidth())
        data = file.readframes(file.getnframes())
    if found != (SAMPLE_RATE, 1, 2):
        raise DataError(
            f"{path} has {found[0]} Hz, {found[1]} channels, {8 * found[2]} bit; expected "
            f"{SAMPLE_RATE} Hz, mono, 16 bit. Convert it first."
        )
    return torch.frombuffer(bytearray(data), dtype=torch.int16).float() / 32768
