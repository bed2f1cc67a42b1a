"""From a configuration and the training text to a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from voicehub_asr_ctc.config import (
    CharactersConfig,
    GivenTokenizerConfig,
    SentencePieceConfig,
    SubwordsConfig,
)
from voicehub_asr_ctc.tokenizers.base import CTCTokenizer
from voicehub_asr_ctc.tokenizers.characters import CharacterTokenizer
from voicehub_asr_ctc.tokenizers.sentence_pieces import SentencePieceTokenizer
from voicehub_asr_ctc.tokenizers.storage import load_tokenizer
from voicehub_asr_ctc.tokenizers.subwords import SubwordTokenizer
from voicehub_asr_ctc.tokenizers.vocabulary import VocabularyReport, survey, without

TokenizerConfig = CharactersConfig | SubwordsConfig | SentencePieceConfig | GivenTokenizerConfig


def build_tokenizer(
    config: TokenizerConfig, texts: Sequence[str], *, with_unknown: bool = False
) -> tuple[CTCTokenizer, VocabularyReport | None]:
    """Build the tokenizer that a configuration asks for.

    Args:
        config: which one.
        texts: normalised training transcripts.
        with_unknown: add ``<unk>``, which tokenizers of transformers expect.

    Returns:
        The tokenizer, and what its vocabulary was built from; None for a given one.
    """
    if isinstance(config, GivenTokenizerConfig):
        return load_tokenizer(config.path), None
    if isinstance(config, SentencePieceConfig):
        if config.path is not None:
            return SentencePieceTokenizer.read(config.path), None
        report = survey(texts)
        trained = SentencePieceTokenizer.train(texts, config.vocab_size, config.algorithm)
        return trained, report
    report = survey(texts, min_count=config.min_count)
    if isinstance(config, SubwordsConfig):
        kept = without(texts, report.dropped)
        return SubwordTokenizer.train(kept, config.vocab_size), report
    characters = list(report.characters)
    return CharacterTokenizer.from_characters(characters, with_unknown=with_unknown), report
