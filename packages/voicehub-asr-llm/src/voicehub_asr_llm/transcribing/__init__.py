"""From audio to text."""

from __future__ import annotations

from voicehub_asr_llm.transcribing.generation import Limits, generate
from voicehub_asr_llm.transcribing.pieces import cut_at_quiet_places

__all__ = ["Limits", "cut_at_quiet_places", "generate"]
