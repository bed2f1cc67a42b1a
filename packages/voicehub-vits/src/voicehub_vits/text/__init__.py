"""From text to token ids: the model's own tokenizer, characters, phonemes."""

from __future__ import annotations

from voicehub_vits.text.front_end import Encoded, TextFrontEnd
from voicehub_vits.text.vocabulary import build_tokenizer

__all__ = ["Encoded", "TextFrontEnd", "build_tokenizer"]
