"""From manifests to batches of a VITS model."""

from __future__ import annotations

from voicehub_vits.data.collate import VitsCollator
from voicehub_vits.data.dataset import VitsDataset, VitsItem
from voicehub_vits.data.preflight import PreparedSplit, prepare_split
from voicehub_vits.data.preparation import AudioPreparation, Prepared

__all__ = [
    "AudioPreparation",
    "Prepared",
    "PreparedSplit",
    "VitsCollator",
    "VitsDataset",
    "VitsItem",
    "prepare_split",
]
