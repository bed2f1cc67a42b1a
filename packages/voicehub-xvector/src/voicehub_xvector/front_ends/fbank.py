"""speechbrain's features, so that a trained ECAPA runs in speechbrain itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from voicehub_data.tensors import as_tensor
from voicehub_xvector.config import FbankFeaturesConfig
from voicehub_xvector.front_ends.base import FrontEnd, Prepared
from voicehub_xvector.speechbrain_parts import speechbrain_part

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Milliseconds of a window and of a hop, speechbrain's defaults.
_WINDOW, _HOP = 25, 10


class FbankFrontEnd(FrontEnd):
    """``speechbrain.lobes.features.Fbank``, then each bin's mean over the utterance removed.

    Args:
        config: of the features.
    """

    input_name = "features"

    def __init__(self, config: FbankFeaturesConfig) -> None:
        self.config = config
        self.sample_rate = config.sample_rate
        # ECAPA's convolutions mirror a few frames at both ends.
        self.minimum_samples = round(config.sample_rate * _HOP / 1000) * 8
        self.feature_size = config.n_mels
        fbank_class = speechbrain_part("lobes.features").Fbank
        self.fbank = fbank_class(**fbank_arguments(config)).eval()

    def _prepare(self, audio: NDArray[np.float32]) -> Prepared:
        with torch.no_grad():
            features = self.fbank(as_tensor(audio)[None])[0]
        return Prepared(features - features.mean(0, keepdim=True), len(features))

    def fused_frames(self, valid: int) -> int:
        return valid

    def fingerprint(self) -> dict[str, Any]:
        return {"front_end": "fbank", "version": 1, **self.config.model_dump(mode="json")}


def fbank_arguments(config: FbankFeaturesConfig) -> dict[str, Any]:
    """Return the arguments of speechbrain's class."""
    window = round(config.sample_rate * _WINDOW / 1000)
    return {
        "sample_rate": config.sample_rate,
        "n_mels": config.n_mels,
        "n_fft": max(400, window),
        "win_length": _WINDOW,
        "hop_length": _HOP,
    }
