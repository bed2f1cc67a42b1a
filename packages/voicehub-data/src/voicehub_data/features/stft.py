"""Short-time Fourier transform and its inverse, frames first: ``(..., frames, bins)``."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor
from torch.nn import functional

from voicehub.errors import ConfigurationError, DataError

PadMode = Literal["constant", "reflect"]


@overload
def num_frames(samples: int, n_fft: int, hop_length: int, *, center: bool = True) -> int: ...
@overload
def num_frames(samples: Tensor, n_fft: int, hop_length: int, *, center: bool = True) -> Tensor: ...
def num_frames(
    samples: int | Tensor, n_fft: int, hop_length: int, *, center: bool = True
) -> int | Tensor:
    """Frames that :func:`stft` returns for a number of samples: exact, for ints and tensors.

    ``1 + (samples + 2 p - n_fft) // hop`` with p = n_fft // 2 when centred, else 0; never below 0.
    """
    padding = 2 * (n_fft // 2) if center else 0
    frames = (samples + padding - n_fft) // hop_length + 1
    return frames.clamp(min=0) if isinstance(frames, Tensor) else max(0, frames)


def padded_window(window: Tensor, n_fft: int) -> Tensor:
    """Centre a window of ``win_length`` samples in ``n_fft``."""
    missing = n_fft - window.shape[-1]
    if missing < 0:
        raise ConfigurationError(f"win_length {window.shape[-1]} exceeds n_fft {n_fft}.")
    return functional.pad(window, (missing // 2, missing - missing // 2))


def stft(
    audio: Tensor,
    n_fft: int,
    hop_length: int,
    window: Tensor,
    *,
    center: bool = True,
    pad_mode: PadMode = "constant",
) -> Tensor:
    """Windowed frames and their real FFT.

    Args:
        audio: float ``(..., samples)``.
        n_fft: FFT size.
        hop_length: samples between frames.
        window: ``(win_length,)``, centred in the frame where shorter than n_fft.
        center: frame t is centred at sample t * hop_length (the signal is padded by n_fft // 2
            on both sides), else it starts there.
        pad_mode: what centring pads with. ``constant`` (zeros) also makes an item's frames
            independent of how far a batch pads it.

    Returns:
        complex ``(..., num_frames(samples), n_fft // 2 + 1)``.

    Raises:
        DataError: ``reflect`` on a clip of at most n_fft // 2 samples.
    """
    full = padded_window(window, n_fft).to(audio.dtype)
    if center:
        audio = _pad_centred(audio, n_fft // 2, pad_mode)
    if audio.shape[-1] < n_fft:
        empty = audio.new_zeros((*audio.shape[:-1], 0, n_fft // 2 + 1))
        return torch.complex(empty, empty)
    spectrum: Tensor = torch.fft.rfft(audio.unfold(-1, n_fft, hop_length) * full)
    return spectrum


def istft(
    spectrum: Tensor, n_fft: int, hop_length: int, window: Tensor, *, length: int | None = None
) -> Tensor:
    """Inverse of a centred :func:`stft` by weighted overlap-add (Griffin and Lim 1984, eq. 6).

    Args:
        spectrum: complex ``(..., frames, n_fft // 2 + 1)``.
        n_fft, hop_length, window: as given to :func:`stft`.
        length: samples of the result; None gives (frames - 1) * hop_length.

    Returns:
        float ``(..., length)``.
    """
    full = padded_window(window, n_fft).to(spectrum.real.dtype)
    frames = torch.fft.irfft(spectrum, n_fft) * full
    total = (frames.shape[-2] - 1) * hop_length + n_fft
    signal = _overlap_add(frames, hop_length, total)
    weight = _overlap_add((full * full).expand(frames.shape[-2], n_fft), hop_length, total)
    signal = signal / weight.clamp(min=torch.finfo(weight.dtype).tiny ** 0.5)
    wanted = (frames.shape[-2] - 1) * hop_length if length is None else length
    signal = signal[..., n_fft // 2 : n_fft // 2 + wanted]
    return functional.pad(signal, (0, wanted - signal.shape[-1]))


def _pad_centred(audio: Tensor, padding: int, pad_mode: PadMode) -> Tensor:
    if pad_mode == "constant":
        return functional.pad(audio, (padding, padding))
    if pad_mode != "reflect":
        raise ConfigurationError(f"pad_mode is constant or reflect, got {pad_mode!r}.")
    if audio.shape[-1] <= padding:
        raise DataError(
            f"a clip of {audio.shape[-1]} samples is too short for reflection by {padding}; "
            "use pad_mode='constant' or drop clips this short."
        )
    flat = audio.reshape(-1, 1, audio.shape[-1])
    out = functional.pad(flat, (padding, padding), mode="reflect")
    return out.reshape(*audio.shape[:-1], out.shape[-1])


def _overlap_add(frames: Tensor, hop_length: int, total: int) -> Tensor:
    """Sum ``(..., frames, n)`` at multiples of the hop to ``(..., total)``."""
    count, size = frames.shape[-2:]
    flat = frames.reshape(-1, count, size).transpose(1, 2)
    out = functional.fold(flat, (1, total), (1, size), stride=(1, hop_length))
    return out.reshape(*frames.shape[:-2], total)
