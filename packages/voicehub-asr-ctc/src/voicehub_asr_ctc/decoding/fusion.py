"""How a language model's opinion enters the beam search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from voicehub.errors import ConfigurationError
from voicehub_asr_ctc.decoding.language_model import LanguageModel
from voicehub_asr_ctc.decoding.words import TokenTexts


class LanguageScore:
    """What the language model makes of a prefix.

    Attributes:
        score: Weighted score of the closed words.
        state: State of the model after them.
        word: The word not yet closed.
        closed: The same with that word closed, once it was asked for.
    """

    __slots__ = ("closed", "score", "state", "word")

    def __init__(self, score: float, state: Any, word: str) -> None:
        self.score, self.state, self.word = score, state, word
        self.closed: LanguageScore | None = None


class NoFusion:
    """Search by CTC alone."""

    _nothing = LanguageScore(0.0, None, "")

    def start(self) -> LanguageScore:
        return self._nothing

    def extend(self, before: LanguageScore, token: int) -> LanguageScore:
        return before

    def best_after(self, language: LanguageScore) -> float:
        """The best language score that one more token can lead to."""
        return 0.0

    def finish(self, language: LanguageScore) -> float:
        return 0.0


class WordFusion:
    """Shallow fusion with a language model over words."""

    def __init__(self, lm: LanguageModel, alpha: float, beta: float, roles: TokenTexts) -> None:
        self._lm, self._alpha, self._beta = lm, alpha, beta
        self._texts, self._starts = roles.texts, roles.starts_word

    def start(self) -> LanguageScore:
        return LanguageScore(0.0, self._lm.initial_state(), "")

    def extend(self, before: LanguageScore, token: int) -> LanguageScore:
        text = self._texts[token]
        if not self._starts[token]:
            return LanguageScore(before.score, before.state, before.word + text)
        closed = self._close(before)
        return LanguageScore(closed.score, closed.state, text)

    def best_after(self, language: LanguageScore) -> float:
        return max(language.score, self._close(language).score)

    def finish(self, language: LanguageScore) -> float:
        closed = self._close(language)
        return closed.score + self._alpha * self._lm.finish(closed.state)

    def _close(self, language: LanguageScore) -> LanguageScore:
        if not language.word:
            return language
        if language.closed is None:
            log_prob, state = self._lm.score(language.state, language.word)
            score = language.score + self._alpha * log_prob + self._beta
            language.closed = LanguageScore(score, state, "")
        return language.closed


Fusion: TypeAlias = NoFusion | WordFusion


def choose_fusion(
    lm: LanguageModel | None,
    alpha: float,
    beta: float,
    tokens: Sequence[str] | TokenTexts | None,
    word_delimiter: str,
    size: int,
) -> Fusion:
    if lm is None:
        return NoFusion()
    if tokens is None:
        raise ConfigurationError("beam_search needs the token strings to use a language model.")
    roles = tokens
    if not isinstance(roles, TokenTexts):
        roles = TokenTexts.from_tokens(roles, word_delimiter)
    if len(roles.texts) != size:
        raise ConfigurationError(f"{len(roles.texts)} token strings for {size} outputs.")
    return WordFusion(lm, alpha, beta, roles)
