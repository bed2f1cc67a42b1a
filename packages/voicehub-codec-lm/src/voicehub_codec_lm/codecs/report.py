"""What a codec keeps of recordings, and how it uses its codes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub_codec_lm.codecs.base import AudioCodec
from voicehub_data.speech_distance import audio_cepstral_distance


class CodecReport:
    """Takes clips one after the other.

    Args:
        codec: what is looked at.
    """

    def __init__(self, codec: AudioCodec) -> None:
        self.codec = codec
        self._counts = torch.zeros(codec.num_codebooks, codec.codebook_size, dtype=torch.long)
        self._decibels: list[float] = []

    def add(self, audio: Tensor) -> None:
        """Encode, decode and compare a clip, float32 (samples,)."""
        codes = self.codec.encode(audio)
        for book, row in enumerate(codes):
            self._counts[book] += torch.bincount(row, minlength=self.codec.codebook_size)
        back = self.codec.decode(codes)
        rate = self.codec.sample_rate
        self._decibels.append(audio_cepstral_distance(audio, back, rate).decibels)

    def result(self) -> dict[str, Any]:
        """Figures as JSON values.

        Raises:
            DataError: no clip was added.
        """
        if not self._decibels:
            raise DataError("there is no recording to look at.")
        shares = self._counts / self._counts.sum(1, keepdim=True).clamp(min=1)
        entropy = -(shares * shares.clamp(min=1e-30).log()).sum(1)
        bits = self.codec.num_codebooks * math.log2(self.codec.codebook_size)
        return {
            "recordings": len(self._decibels),
            "mel_cepstral_distance_db": sum(self._decibels) / len(self._decibels),
            "bits_per_second": bits * self.codec.frame_rate,
            "codes_used": (self._counts > 0).sum(1).tolist(),
            "perplexity": entropy.exp().tolist(),
        }
