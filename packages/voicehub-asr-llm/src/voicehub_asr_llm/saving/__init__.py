"""Artifacts: what was trained, small and apart from the base, which is named with a hash."""

from __future__ import annotations

from voicehub_asr_llm.saving.bases import Bases, require_identity
from voicehub_asr_llm.saving.parts import load_parts, save_parts

__all__ = ["Bases", "load_parts", "require_identity", "save_parts"]
