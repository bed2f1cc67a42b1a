"""From manifests to batches of audio and conversation."""

from __future__ import annotations

from voicehub_asr_llm.data.collate import AUDIO, AsrLlmCollator
from voicehub_asr_llm.data.dataset import AsrLlmDataset, AsrLlmItem

__all__ = ["AUDIO", "AsrLlmCollator", "AsrLlmDataset", "AsrLlmItem"]
