"""From manifests to batches of audio and conversation."""

from __future__ import annotations

from voicehub_asr_llm.data.collate import AUDIO, AsrLlmCollator
from voicehub_asr_llm.data.dataset import AsrLlmDataset, AsrLlmItem, Silence
from voicehub_asr_llm.data.labelled import LabelledRows, Labeller, label_rows

__all__ = [
    "AUDIO",
    "AsrLlmCollator",
    "AsrLlmDataset",
    "AsrLlmItem",
    "LabelledRows",
    "Labeller",
    "Silence",
    "label_rows",
]
