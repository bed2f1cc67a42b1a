"""Input of the log-mel network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from voicehub_asr_ctc.config import LogMelModelConfig
from voicehub_asr_ctc.front_ends.base import FrontEnd, Prepared
from voicehub_asr_ctc.network import SUBSAMPLING, output_frames
from voicehub_data.features import LogMel
from voicehub_data.tensors import as_tensor, pad_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SETTINGS = ("sample_rate", "n_mels", "n_fft", "win_length", "hop_length")
_LOG_FLOOR = 1e-8


class LogMelFrontEnd(FrontEnd):
    """Log-mel features, each bin centred over the utterance, all divided by one deviation.

    Centring a bin removes the microphone's and the room's colour; one common deviation keeps the
    relations between bins, which dividing each by its own would drown in the noise of empty ones.
    """

    masks = "features"

    def __init__(self, config: LogMelModelConfig) -> None:
        self.settings = {name: getattr(config, name) for name in _SETTINGS}
        self.sample_rate = config.sample_rate
        self.hop_samples = SUBSAMPLING * config.hop_length
        self.minimum_samples = config.hop_length
        self.log_mel = LogMel(
            config.sample_rate,
            config.n_fft,
            config.hop_length,
            config.n_mels,
            win_length=config.win_length,
            scale="htk",
            norm="none",
            log_floor=_LOG_FLOOR,
        )

    def frames(self, samples: int) -> int:
        return output_frames(self.log_mel.num_frames(samples))

    def _prepare(self, audio: NDArray[np.float32]) -> Prepared:
        features = self.log_mel(as_tensor(audio))
        features = features - features.mean(0, keepdim=True)
        features = features / (features.square().mean().sqrt() + 1e-5)
        frames = output_frames(len(features))
        return Prepared(features, len(features), frames, frames)

    def batch(self, items: Sequence[Prepared]) -> dict[str, Any]:
        lengths = torch.tensor([item.valid for item in items])
        return {"features": pad_rows([item.rows for item in items]), "feature_lengths": lengths}

    def fingerprint(self) -> dict[str, Any]:
        return {"front_end": "log-mel", "version": 1, **self.settings}
