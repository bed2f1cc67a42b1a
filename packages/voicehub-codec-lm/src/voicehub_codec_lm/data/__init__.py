"""From manifests to batches of codes."""

from __future__ import annotations

from voicehub_codec_lm.data.collate import (
    CodecCollator,
    DelayCollator,
    DepthCollator,
    FlatCollator,
)
from voicehub_codec_lm.data.dataset import CodecDataset, CodecItem
from voicehub_codec_lm.data.preflight import PromptedSplit, prompt_split

__all__ = [
    "CodecCollator",
    "CodecDataset",
    "CodecItem",
    "DelayCollator",
    "DepthCollator",
    "FlatCollator",
    "PromptedSplit",
    "prompt_split",
]
