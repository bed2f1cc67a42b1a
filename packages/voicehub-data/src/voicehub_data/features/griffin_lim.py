"""From magnitudes back to a waveform: Griffin-Lim, and mel spectra to linear ones."""

from __future__ import annotations

import torch
from torch import Tensor

from voicehub.data.keyed_random import torch_generator
from voicehub_data.features.stft import istft, stft


def griffin_lim(
    magnitude: Tensor,
    n_fft: int,
    hop_length: int,
    window: Tensor,
    *,
    iterations: int = 32,
    momentum: float = 0.99,
    length: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Estimate a signal whose STFT has the given magnitude.

    Fast Griffin-Lim (Perraudin et al. 2013): alternating projections on consistent spectra and on
    the magnitude, with momentum. ``momentum=0`` is the algorithm of Griffin and Lim (1984).

    Args:
        magnitude: float >= 0, ``(..., frames, n_fft // 2 + 1)``, of a centred STFT.
        n_fft, hop_length, window: of that STFT.
        iterations: number of projections.
        momentum: in [0, 1).
        length: samples of the result; None gives (frames - 1) * hop_length.
        seed: of the random initial phases; equal seeds give equal signals.

    Returns:
        float ``(..., length)``.
    """
    generator = torch_generator("griffin-lim", seed)
    phases = torch.rand(magnitude.shape, generator=generator, dtype=torch.float64)
    angle = (2.0 * torch.pi * phases).to(magnitude)
    unit = torch.polar(torch.ones_like(angle), angle)
    samples = (magnitude.shape[-2] - 1) * hop_length if length is None else length
    previous = torch.zeros_like(unit)
    tiny = torch.finfo(magnitude.dtype).tiny ** 0.5
    for _ in range(iterations):
        signal = istft(magnitude * unit, n_fft, hop_length, window, length=samples)
        rebuilt = _with_frames(stft(signal, n_fft, hop_length, window), magnitude.shape[-2])
        accelerated = rebuilt + momentum * (rebuilt - previous)
        unit = accelerated / accelerated.abs().clamp(min=tiny)
        previous = rebuilt
    return istft(magnitude * unit, n_fft, hop_length, window, length=samples)


def mel_to_magnitude(
    mel: Tensor, filterbank: Tensor, *, power: float = 2.0, iterations: int = 50
) -> Tensor:
    """Non-negative linear spectra whose mel projection comes near ``mel``.

    Multiplicative updates of the least-squares error (Lee and Seung 2001), from the clamped
    pseudo-inverse.

    Args:
        mel: mel energies >= 0 (not logarithms), ``(..., frames, n_mels)``.
        filterbank: ``(n_fft // 2 + 1, n_mels)``, as :class:`LogMel` holds it.
        power: exponent of the energies; the result is a magnitude, energy ** (1 / power).
        iterations: number of updates.

    Returns:
        float ``(..., frames, n_fft // 2 + 1)``.
    """
    filters = filterbank.to(mel.dtype)
    floor = torch.finfo(mel.dtype).eps
    energy = (mel @ torch.linalg.pinv(filters)).clamp(min=floor)
    target = mel @ filters.T
    gram = filters @ filters.T
    for _ in range(iterations):
        energy = energy * (target / (energy @ gram).clamp(min=floor**2))
    magnitude: Tensor = energy.pow(1.0 / power)
    return magnitude


def _with_frames(spectrum: Tensor, frames: int) -> Tensor:
    """Cut or zero-extend to ``frames`` frames, where ``length`` does not match them."""
    have = spectrum.shape[-2]
    if have >= frames:
        return spectrum[..., :frames, :]
    missing = spectrum.new_zeros((*spectrum.shape[:-2], frames - have, spectrum.shape[-1]))
    return torch.cat([spectrum, missing], dim=-2)
