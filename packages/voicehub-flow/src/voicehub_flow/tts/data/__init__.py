"""From manifests to batches of mel frames."""

from __future__ import annotations

from voicehub_flow.tts.data.collate import F5Collator
from voicehub_flow.tts.data.dataset import F5Dataset, F5Item
from voicehub_flow.tts.data.mels import MelReader
from voicehub_flow.tts.data.preflight import PreparedSplit, prepare_split

__all__ = [
    "F5Collator",
    "F5Dataset",
    "F5Item",
    "MelReader",
    "PreparedSplit",
    "prepare_split",
]
