"""The English normaliser of ``transformers``, where that package is installed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from voicehub.errors import OptionalDependencyError
from voicehub_data.text.spelling import americanise


class _SpellingRules(dict[str, str]):
    """Answers ``get`` by rule: the word list it stands for is not part of ``transformers``."""

    def get(self, word: str, default: Any = None) -> Any:
        return americanise(word)


def whisper_english_normalizer() -> Callable[[str], str]:
    """``EnglishTextNormalizer`` with our rules for British spellings.

    Raises:
        OptionalDependencyError: transformers is not installed.
    """
    try:
        from transformers.models.whisper import english_normalizer
    except ImportError as error:
        raise OptionalDependencyError(
            "the text normaliser 'whisper-english' needs transformers: pip install transformers; "
            "the preset 'english' needs nothing."
        ) from error
    build: Callable[..., Callable[[str], str]] = english_normalizer.EnglishTextNormalizer
    return build(_SpellingRules())


# Spellings of one word that are a matter of the annotator's habit: (pattern, the one that counts).
_VARIANTS = (
    (re.compile(r"\bokay\b"), "ok"),
    (re.compile(r"\ball right\b"), "alright"),
    (re.compile(r"\bkinda\b"), "kind of"),
)


def whisper_english_variants_normalizer() -> Callable[[str], str]:
    """``whisper-english``, then one spelling each for okay, all right and kinda.

    Raises:
        OptionalDependencyError: transformers is not installed.
    """
    normalize = whisper_english_normalizer()

    def with_variants(text: str) -> str:
        text = normalize(text)
        for pattern, spelling in _VARIANTS:
            text = pattern.sub(spelling, text)
        return " ".join(text.split())

    return with_variants
