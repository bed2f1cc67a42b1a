"""Log-mel features of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from voicehub_data.features import LogMel
from voicehub_data.tensors import as_tensor
from voicehub_xvector.config import LogMelFeaturesConfig
from voicehub_xvector.front_ends.base import FrontEnd, Prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOG_FLOOR = 1e-8


class LogMelFrontEnd(FrontEnd):
    """Log-mel features, each bin centred over the utterance where that is asked for.

    Centring removes the colour of microphone and room, which would else stand for the speaker.

    Args:
        config: of the features.
    """

    input_name = "features"

    def __init__(self, config: LogMelFeaturesConfig) -> None:
        self.config = config
        self.sample_rate = config.sample_rate
        self.minimum_samples = config.hop
        self.feature_size = config.n_mels
        self.log_mel = LogMel(
            config.sample_rate,
            config.fft,
            config.hop,
            config.n_mels,
            win_length=config.window,
            scale="htk",
            norm="none",
            log_floor=_LOG_FLOOR,
        )

    def _prepare(self, audio: NDArray[np.float32]) -> Prepared:
        features = normalised(self.log_mel(as_tensor(audio)), self.config.normalize)
        return Prepared(features, len(features))

    def fused_frames(self, valid: int) -> int:
        return valid

    def fingerprint(self) -> dict[str, Any]:
        return {"front_end": "log-mel", "version": 1, **self.config.model_dump(mode="json")}


def normalised(features: Tensor, how: str) -> Tensor:
    """Return (T, F) with mean, or mean and variance, of each value over time removed."""
    if how == "none":
        return features
    centred = features - features.mean(0, keepdim=True)
    if how == "mean":
        return centred
    return centred * (centred.square().mean(0, keepdim=True) + 1e-5).rsqrt()
