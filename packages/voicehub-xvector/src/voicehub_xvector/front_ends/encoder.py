"""Input of a pretrained encoder, as its own feature extractor makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub_hf.features import extractor_settings, feature_lengths, minimum_samples
from voicehub_hf.lengths import downsampling, output_lengths
from voicehub_hf.speech_encoders import EncoderParts
from voicehub_xvector.front_ends.base import FrontEnd, Prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray


class EncoderFrontEnd(FrontEnd):
    """The feature extractor of a checkpoint, called on one utterance at a time.

    Called on a batch it would normalise over the padding.

    Args:
        parts: of the checkpoint.
    """

    masks = "fused"

    def __init__(self, parts: EncoderParts) -> None:
        self.config = parts.config
        self.extractor = parts.feature_extractor
        self.kind = parts.encoder.input_kind
        self.input_name = parts.encoder.input_name
        self.sample_rate = int(self.extractor.sampling_rate)
        self.minimum_samples = minimum_samples(self.config, self.extractor)
        self.padding_value = float(self.extractor.padding_value)
        #: Longest audio that one forward sees; None where there is no limit.
        self.maximum_samples = int(self.extractor.n_samples) if self.kind == "bins" else None

    def frames(self, samples: int) -> int:
        """Frames that the encoder gives for a number of samples: exact."""
        return self.fused_frames(feature_lengths(self.extractor, samples))

    def fused_frames(self, valid: int) -> int:
        return output_lengths(self.config, valid)

    @property
    def hop_samples(self) -> int:
        """Samples from one of the encoder's frames to the next."""
        per_row = 1
        if self.kind == "frames":
            per_row = 160 * int(self.extractor.stride)
        elif self.kind == "bins":
            per_row = int(self.extractor.hop_length)
        return downsampling(self.config) * per_row

    def _prepare(self, audio: NDArray[np.float32]) -> Prepared:
        features = self.extractor(
            audio,
            sampling_rate=self.sample_rate,
            return_tensors="pt",
            return_attention_mask=True,
            **({} if self.kind == "bins" else {"padding": True}),
        )
        rows = features[self.input_name][0].float()
        if self.kind == "bins":
            # Frames first, as everywhere else; the network turns them back.
            return Prepared(rows.T, feature_lengths(self.extractor, len(audio)))
        valid = int(features["attention_mask"][0].sum())
        return Prepared(rows[:valid], valid)

    def fingerprint(self) -> dict[str, Any]:
        settings = extractor_settings(self.extractor)
        return {"front_end": type(self.extractor).__name__, "version": 1, "settings": settings}
