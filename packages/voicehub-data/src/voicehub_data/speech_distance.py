"""Mel cepstral distance between synthetic and recorded speech.

Definition, which figures should be quoted with: mel cepstra c(1) to c(13) from the logarithm of
mel magnitudes, without c(0), so that loudness does not count; frames paired by dynamic time warping
on the same distance; the mean over the pairs of ``10 / ln 10 * sqrt(2 * sum_k (c_k - c'_k)^2)``,
in dB (Kubichek 1993). The cepstra are scaled so that
``ln S(m) = c_0 + sum_k c_k cos(pi k (m + 1/2) / M)``, as those of a mel-cepstral vocoder: the
distance is then the root mean square difference of the two smoothed spectra in dB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from voicehub.errors import DataError
from voicehub_data.features import LogMel
from voicehub_data.time_warping import dynamic_time_warping

ORDER = 13
DECIBELS = 10.0 / math.log(10.0) * math.sqrt(2.0)


@dataclass(frozen=True)
class CepstralDistance:
    """The distance of two utterances.

    Attributes:
        decibels: mean over the frame pairs.
        pairs: number of frame pairs on the warping path.
        stretch: frames of the second utterance over those of the first.
    """

    decibels: float
    pairs: int
    stretch: float


def mel_cepstra(log_mel: NDArray[np.floating], order: int = ORDER) -> NDArray[np.float64]:
    """Cepstra c(1) to c(order) of log-mel spectra.

    Args:
        log_mel: (frames, mels), natural logarithms of magnitudes.
        order: below the number of mels.

    Returns:
        float64 (frames, order).

    Raises:
        DataError: the array is not (frames, mels), or holds too few mels.
    """
    spectra = np.asarray(log_mel, dtype=np.float64)
    if spectra.ndim != 2 or spectra.shape[1] <= order:
        raise DataError(
            f"mel_cepstra: expected (frames, mels) with more than {order} mels, got "
            f"{spectra.shape}."
        )
    mels = spectra.shape[1]
    angles = np.pi / mels * np.outer(np.arange(mels) + 0.5, np.arange(1, order + 1))
    return spectra @ np.cos(angles) * (2.0 / mels)


def mel_cepstral_distance(
    reference: NDArray[np.floating], other: NDArray[np.floating], order: int = ORDER
) -> CepstralDistance:
    """Distance of two utterances given as log-mel spectra; see the module for the definition.

    Args:
        reference, other: (frames, mels), natural logarithms of magnitudes, from one analysis;
            they may differ in length.
        order: number of cepstra.

    Raises:
        DataError: an utterance has no frame, the mels differ, or a value is not finite.
    """
    here, there = mel_cepstra(reference, order), mel_cepstra(other, order)
    if not len(here) or not len(there) or np.shape(reference)[1] != np.shape(other)[1]:
        raise DataError(
            "mel_cepstral_distance: expected two utterances with frames of equally many mels, got "
            f"{np.shape(reference)} and {np.shape(other)}."
        )
    squares = (here**2).sum(1)[:, None] + (there**2).sum(1)[None, :] - 2.0 * here @ there.T
    path = dynamic_time_warping(DECIBELS * np.sqrt(np.maximum(squares, 0.0)))
    rows, columns = path.pairs.T
    # Again from the differences: the expansion above loses digits where frames are nearly equal.
    along = DECIBELS * np.sqrt(((here[rows] - there[columns]) ** 2).sum(1))
    return CepstralDistance(float(along.mean()), len(path.pairs), len(there) / len(here))


def audio_cepstral_distance(
    reference: Tensor, other: Tensor, sample_rate: int, order: int = ORDER
) -> CepstralDistance:
    """Distance of two waveforms over the analysis that :func:`distance_mel` fixes.

    Args:
        reference, other: float (samples,) at ``sample_rate``.
        sample_rate: Hz.
        order: number of cepstra.

    Raises:
        DataError: a waveform is empty or not (samples,).
    """
    if reference.dim() != 1 or other.dim() != 1 or not reference.numel() or not other.numel():
        raise DataError(
            "audio_cepstral_distance: expected two waveforms (samples,), got "
            f"{tuple(reference.shape)} and {tuple(other.shape)}."
        )
    analysis = distance_mel(sample_rate)
    with torch.no_grad():
        spectra = [analysis(audio.detach().float().cpu()).numpy() for audio in (reference, other)]
    return mel_cepstral_distance(*spectra, order=order)


def distance_mel(sample_rate: int) -> LogMel:
    """The analysis of :func:`audio_cepstral_distance`: magnitudes of 80 mels to half the rate.

    Hann windows of the power of two nearest to 46 ms, every quarter window (1,024 and 256 samples
    at 16 to 24 kHz), floor 1e-5.
    """
    n_fft = 2 ** round(math.log2(0.046 * sample_rate))
    return LogMel(sample_rate, n_fft, n_fft // 4, 80, power=1.0, log_floor=1e-5)
