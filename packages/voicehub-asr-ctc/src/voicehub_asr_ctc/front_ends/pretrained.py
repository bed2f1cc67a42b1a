"""Input of the CTC classes of transformers, as their own processors make it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from voicehub.errors import ConfigurationError
from voicehub_asr_ctc.front_ends.base import FrontEnd, Prepared
from voicehub_data.tensors import pad_rows
from voicehub_hf.encoders import ctc_encoder
from voicehub_hf.features import (
    extractor_settings,
    feature_extractor_of,
    feature_lengths,
    minimum_samples,
)
from voicehub_hf.lengths import downsampling, hidden_lengths, output_lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Hop of the Kaldi features of W2V-BERT's processor, in samples.
_KALDI_HOP = 160


class PretrainedFrontEnd(FrontEnd):
    """The processor of a checkpoint, called on one utterance at a time.

    Called on a batch it would normalise over the padding. The masked row that processors of
    log-mel models append to some utterances is kept: no label is aligned with its frame, but plain
    transformers decodes it.

    Args:
        config: the model's configuration.
        processor: its processor or feature extractor.
    """

    def __init__(self, config: Any, processor: Any) -> None:
        self.config = config
        self.extractor = feature_extractor_of(processor)
        encoder = ctc_encoder(config)
        self.input_name = encoder.input_name
        self.kind = type(self.extractor).__name__
        self.sample_rate = int(self.extractor.sampling_rate)
        self.masks = "hidden" if encoder.processor_kind == "waveform" else "features"
        self.masks_rows = encoder.processor_kind == "log-mel"
        self.hidden_size = int(config.hidden_size) if self.masks == "hidden" else 0
        self._samples_per_row = self._row_hop()
        self.hop_samples = downsampling(config) * self._samples_per_row
        self.minimum_samples = minimum_samples(config, processor)

    def frames(self, samples: int) -> int:
        return output_lengths(self.config, feature_lengths(self.extractor, samples))

    def _row_hop(self) -> int:
        if self.input_name == "input_values":
            return 1
        if self.kind == "SeamlessM4TFeatureExtractor":
            return _KALDI_HOP * int(self.extractor.stride)
        if self.kind == "ParakeetFeatureExtractor":
            return int(self.extractor.hop_length)
        raise ConfigurationError(f"No length formula for the feature extractor {self.kind}.")

    def _prepare(self, audio: NDArray[np.float32]) -> Prepared:
        features = self.extractor(
            audio,
            sampling_rate=self.sample_rate,
            return_tensors="pt",
            return_attention_mask=True,
            padding=True,
        )
        rows = features[self.input_name][0].float()
        valid = int(features["attention_mask"][0].sum())
        frames = output_lengths(self.config, valid)
        return Prepared(rows, valid, frames, output_lengths(self.config, len(rows)))

    def mask_frames(self, prepared: Prepared) -> int:
        return self.hidden_frames(len(prepared.rows))

    def hidden_frames(self, rows: int) -> int:
        """Frames behind the front end and before a subsampling adapter, where masks lie."""
        return hidden_lengths(self.config, rows)

    def batch(self, items: Sequence[Prepared]) -> dict[str, Any]:
        padded = pad_rows([item.rows for item in items], float(self.extractor.padding_value))
        valid = torch.tensor([item.valid for item in items])
        mask = (torch.arange(padded.shape[1]) < valid[:, None]).long()
        return {self.input_name: padded, "attention_mask": mask}

    def fingerprint(self) -> dict[str, Any]:
        settings = extractor_settings(self.extractor)
        return {"front_end": self.kind, "version": 1, "settings": settings}
