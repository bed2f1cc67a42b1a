"""Tokenizers of CTC models: one token is the blank, the others are written by the model."""

from __future__ import annotations

from voicehub_asr_ctc.tokenizers.base import CTCTokenizer, Encoding
from voicehub_asr_ctc.tokenizers.build import build_tokenizer
from voicehub_asr_ctc.tokenizers.characters import CharacterTokenizer
from voicehub_asr_ctc.tokenizers.storage import load_tokenizer, save_tokenizer
from voicehub_asr_ctc.tokenizers.vocabulary import VocabularyReport

__all__ = [
    "CTCTokenizer",
    "CharacterTokenizer",
    "Encoding",
    "VocabularyReport",
    "build_tokenizer",
    "load_tokenizer",
    "save_tokenizer",
]
