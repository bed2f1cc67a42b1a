"""Splitting tokens into words, for language models and timings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voicehub.models.results import WordTiming
from voicehub_asr_ctc.decoding.results import Alignment


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """How the tokens of a vocabulary spell words.

    One rule covers characters with a delimiter (``|`` or a space) and pieces that carry a mark
    where a word starts (``▁the``): a token that begins with the delimiter closes the word before
    it and starts the next with what is left of it.

    Attributes:
        texts: What each token adds to the word it belongs to.
        starts_word: Whether it closes the word before it.
    """

    texts: tuple[str, ...]
    starts_word: tuple[bool, ...]

    @classmethod
    def from_tokens(cls, tokens: Sequence[str], word_delimiter: str = "|") -> TokenTexts:
        """Read the roles off the token strings, in the order of their ids."""
        starts = tuple(token.startswith(word_delimiter) for token in tokens)
        texts = tuple(
            token.removeprefix(word_delimiter) if start else token
            for token, start in zip(tokens, starts, strict=True)
        )
        return cls(texts, starts)

    def words(self, ids: Sequence[int]) -> list[str]:
        """Return the words that ``ids`` spell; empty ones are left out."""
        words = [""]
        for index in ids:
            if self.starts_word[index]:
                words.append("")
            words[-1] += self.texts[index]
        return [word for word in words if word]


def word_timings(
    alignment: Alignment,
    tokens: Sequence[str] | TokenTexts,
    frame_seconds: float,
    *,
    word_delimiter: str = "|",
    offset: float = 0.0,
) -> list[WordTiming]:
    """Return the words of an alignment with their times.

    A word lasts from the first frame of its first token to the last frame of its last one. CTC
    models emit a token somewhere within its sound, often late, so times are good to a few frames.

    Args:
        alignment: From :func:`greedy` or :func:`force_align`.
        tokens: Token strings by id, or their roles.
        frame_seconds: Seconds between two frames.
        word_delimiter: See :class:`TokenTexts`.
        offset: Seconds added to every time, for a part of a longer recording.
    """
    roles = tokens
    if not isinstance(roles, TokenTexts):
        roles = TokenTexts.from_tokens(roles, word_delimiter)
    timings: list[WordTiming] = []
    word, start, end = "", 0, 0

    def close() -> None:
        if word:
            seconds = (offset + frame * frame_seconds for frame in (start, end))
            timings.append(WordTiming(word, *seconds))

    for index, first, after in zip(alignment.ids, alignment.frames, alignment.ends, strict=True):
        if roles.starts_word[index]:
            close()
            word = ""
        text = roles.texts[index]
        if text:
            if not word:
                start = first
            word, end = word + text, after
    close()
    return timings
