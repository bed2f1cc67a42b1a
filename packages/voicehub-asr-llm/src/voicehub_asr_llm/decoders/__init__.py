"""Decoders: causal language models of transformers, their chat templates, their loss."""

from __future__ import annotations

from voicehub_asr_llm.decoders.chat import ChatFormat, Encoded, Prompt
from voicehub_asr_llm.decoders.loading import DecoderSource, base_of, embedding_rms, plain

__all__ = [
    "ChatFormat",
    "DecoderSource",
    "Encoded",
    "Prompt",
    "base_of",
    "embedding_rms",
    "plain",
]
