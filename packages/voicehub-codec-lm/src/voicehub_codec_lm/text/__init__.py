"""From text and speaker to prompt tokens."""

from __future__ import annotations

from voicehub_codec_lm.text.characters import CharacterPrompts
from voicehub_codec_lm.text.pretrained import PretrainedPrompts
from voicehub_codec_lm.text.prompts import Prompts, load_prompts

__all__ = ["CharacterPrompts", "PretrainedPrompts", "Prompts", "load_prompts"]
