"""Splits, samplers, the data set, batches."""

from __future__ import annotations

from voicehub_xvector.data.collate import XVectorCollator
from voicehub_xvector.data.dataset import XVectorDataset, XVectorItem
from voicehub_xvector.data.speakers import SpeakerSplit, speaker_split

__all__ = [
    "SpeakerSplit",
    "XVectorCollator",
    "XVectorDataset",
    "XVectorItem",
    "speaker_split",
]
