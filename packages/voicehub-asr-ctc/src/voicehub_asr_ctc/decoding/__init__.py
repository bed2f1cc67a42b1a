"""From frame scores to token sequences, texts and times; all on the CPU."""

from __future__ import annotations

from voicehub_asr_ctc.decoding.beam import beam_search
from voicehub_asr_ctc.decoding.forced import force_align, minimum_frames
from voicehub_asr_ctc.decoding.greedy import best_path_alignment, greedy
from voicehub_asr_ctc.decoding.language_model import LanguageModel, NgramLM
from voicehub_asr_ctc.decoding.lexicon import LexiconDecoder
from voicehub_asr_ctc.decoding.results import Alignment, Hypothesis
from voicehub_asr_ctc.decoding.words import TokenTexts, word_timings

__all__ = [
    "Alignment",
    "Hypothesis",
    "LanguageModel",
    "LexiconDecoder",
    "NgramLM",
    "TokenTexts",
    "beam_search",
    "best_path_alignment",
    "force_align",
    "greedy",
    "minimum_frames",
    "word_timings",
]
