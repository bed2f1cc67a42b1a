"""What a Frechet distance is taken over: embeddings of waveforms, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from voicehub_data.audio import resample
from voicehub_data.features import LogMel

if TYPE_CHECKING:
    from numpy.typing import NDArray

Wave = "NDArray[np.float32]"
Embed = Callable[[Sequence[Any], int], "NDArray[np.float64]"]

#: Of the built-in embedding: what telephone speech has in common with all else.
LOG_MEL_RATE, LOG_MEL_BINS = 8000, 32


def log_mel_embedding(waves: Sequence[Any], rate: int) -> NDArray[np.float64]:
    """Every frame of every clip as a point: 32 log-mel bins of 8 kHz audio, 32 ms each 16 ms.

    Args:
        waves: float32 (samples,) each.
        rate: Hz.

    Returns:
        (frames of all clips, 32).
    """
    features = LogMel(LOG_MEL_RATE, 256, 128, LOG_MEL_BINS, log_floor=1e-5)
    found = []
    for wave in waves:
        heard = resample(np.ascontiguousarray(wave, np.float32), rate, LOG_MEL_RATE)
        with torch.no_grad():
            found.append(features(torch.from_numpy(np.ascontiguousarray(heard))).double().numpy())
    return np.concatenate(found)


def speaker_embedding(embedder: Any) -> Embed:
    """One point a clip: that of a speaker embedder."""

    def embed(waves: Sequence[Any], rate: int) -> NDArray[np.float64]:
        found: NDArray[np.float64] = embedder.embed(list(waves), rate).double().numpy()
        return found

    return embed
