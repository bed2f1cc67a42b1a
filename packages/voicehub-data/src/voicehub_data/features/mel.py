"""Mel scales and the triangular filterbank.

Two scales are in use: HTK's ``m = 2595 log10(1 + f / 700)`` and Slaney's Auditory Toolbox scale,
linear (200/3 Hz a mel) below 1 kHz and logarithmic (27 mels a factor of 6.4) above.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from voicehub.errors import ConfigurationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MelScale = Literal["htk", "slaney"]
FilterNorm = Literal["none", "slaney"]

_SLANEY_HZ_PER_MEL = 200.0 / 3.0
_SLANEY_BREAK_HZ = 1000.0
_SLANEY_BREAK_MEL = _SLANEY_BREAK_HZ / _SLANEY_HZ_PER_MEL
_SLANEY_LOG_STEP = math.log(6.4) / 27.0


def hz_to_mel(frequency: NDArray[np.float64] | float, scale: MelScale) -> NDArray[np.float64]:
    """Frequencies in Hz to mels."""
    hz = np.asarray(frequency, dtype=np.float64)
    if scale == "htk":
        return np.asarray(2595.0 * np.log10(1.0 + hz / 700.0))
    linear = hz / _SLANEY_HZ_PER_MEL
    ratio = np.maximum(hz, _SLANEY_BREAK_HZ) / _SLANEY_BREAK_HZ
    logarithmic = _SLANEY_BREAK_MEL + np.log(ratio) / _SLANEY_LOG_STEP
    return np.where(hz < _SLANEY_BREAK_HZ, linear, logarithmic)


def mel_to_hz(mels: NDArray[np.float64] | float, scale: MelScale) -> NDArray[np.float64]:
    """Mels to frequencies in Hz: the inverse of :func:`hz_to_mel`."""
    mel = np.asarray(mels, dtype=np.float64)
    if scale == "htk":
        return np.asarray(700.0 * (10.0 ** (mel / 2595.0) - 1.0))
    linear = mel * _SLANEY_HZ_PER_MEL
    above = np.maximum(mel, _SLANEY_BREAK_MEL) - _SLANEY_BREAK_MEL
    logarithmic = _SLANEY_BREAK_HZ * np.exp(_SLANEY_LOG_STEP * above)
    return np.where(mel < _SLANEY_BREAK_MEL, linear, logarithmic)


def mel_filterbank(
    sample_rate: int,
    n_fft: int,
    n_mels: int,
    *,
    f_min: float = 0.0,
    f_max: float | None = None,
    scale: MelScale = "slaney",
    norm: FilterNorm = "slaney",
) -> NDArray[np.float64]:
    """Triangular filters with corners evenly spaced in mels.

    Args:
        sample_rate: Hz.
        n_fft: FFT size.
        n_mels: number of filters.
        f_min, f_max: lowest and highest corner in Hz; f_max None is half the sample rate.
        scale: ``"htk"`` or ``"slaney"``.
        norm: ``"slaney"`` divides each filter by half its width in Hz (constant area), ``"none"``
            leaves peaks at 1.

    Returns:
        float64 ``(n_mels, n_fft // 2 + 1)``.

    Raises:
        ConfigurationError: the range is empty, or a filter is so narrow that it holds no FFT bin.
    """
    top = sample_rate / 2 if f_max is None else f_max
    if not 0 <= f_min < top <= sample_rate / 2:
        raise ConfigurationError(
            f"mel filterbank: expected 0 <= f_min < f_max <= {sample_rate / 2:g} Hz (half the "
            f"sample rate), got f_min {f_min:g} and f_max {top:g}."
        )
    if scale not in ("htk", "slaney") or norm not in ("none", "slaney"):
        raise ConfigurationError(
            f"mel filterbank: scale is htk or slaney, norm none or slaney; got {scale!r}, {norm!r}."
        )
    mels = np.linspace(hz_to_mel(f_min, scale), hz_to_mel(top, scale), n_mels + 2)
    corners = mel_to_hz(mels, scale)
    bins = np.arange(n_fft // 2 + 1) * (sample_rate / n_fft)
    widths = np.diff(corners)
    rising = (bins[None, :] - corners[:-2, None]) / widths[:-1, None]
    falling = (corners[2:, None] - bins[None, :]) / widths[1:, None]
    filters = np.maximum(0.0, np.minimum(rising, falling))
    if norm == "slaney":
        filters *= (2.0 / (corners[2:] - corners[:-2]))[:, None]
    empty = np.flatnonzero(filters.max(axis=1) == 0.0)
    if len(empty):
        raise ConfigurationError(
            f"mel filterbank: {len(empty)} of {n_mels} filters hold no FFT bin (the first is "
            f"number {empty[0]}); lower n_mels or raise n_fft ({n_fft} at {sample_rate} Hz)."
        )
    return filters
