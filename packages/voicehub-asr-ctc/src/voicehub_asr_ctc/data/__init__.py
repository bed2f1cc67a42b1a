"""From manifests to batches of a CTC model, with a pre-flight that leaves no row unaccounted."""

from __future__ import annotations

from voicehub_asr_ctc.data.collate import CTCCollator
from voicehub_asr_ctc.data.dataset import CTCDataset
from voicehub_asr_ctc.data.preflight import LabelledSplit, label_split

__all__ = [
    "CTCCollator",
    "CTCDataset",
    "LabelledSplit",
    "label_split",
]
