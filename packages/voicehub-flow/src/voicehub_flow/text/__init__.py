"""From text to token ids."""

from __future__ import annotations

from voicehub_flow.text.vocabulary import Encoded, Vocabulary

__all__ = ["Encoded", "Vocabulary"]
