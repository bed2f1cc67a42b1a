"""Transcripts as training targets: what annotators wrote around the words goes, the words stay.

A normaliser of metrics may lower, expand and rewrite, since it is applied to both sides. What a
model is taught to write must stay as it is spelled, with its case and its punctuation, and lose
only what nobody says: tags, remarks in brackets, the gaps of tokenised text. The steps run in the
order of :data:`LABEL_STEPS`, and a second pass changes nothing.

| step | from | to |
|---|---|---|
| ``unicode`` | NFKC, curly quotes, invisible characters: "don\u2019t" | "don't" |
| ``punctuation-tags`` | "hello <COMMA> world <PERIOD>" | "hello, world." |
| ``markup`` | "hello <unk> <b>world</b>" | "hello world" |
| ``brackets`` | "hello [noise] (laughter) world" | "hello world" |
| ``percent`` | "five per cent" | "five percent" |
| ``contractions`` | "do n't", "it 's" | "don't", "it's" |
| ``spaces`` | "hello ,  world" | "hello, world" |
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

TextFunction = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class LabelStep:
    """One rule of the normaliser, under the name that documentation and tests use."""

    name: str
    function: TextFunction

    def __call__(self, text: str) -> str:
        return self.function(text)


# Before NFKC, which takes an acute or a grave accent that stands alone apart.
_QUOTES = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u02bc": "'",
        "\u2032": "'", "\u00b4": "'", "`": "'",
        "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2033": '"',
    }
)  # fmt: skip
# Persian and Indic spelling needs these two, though they are invisible.
_JOINERS = "\u200c\u200d"


def _unicode(text: str) -> str:
    """NFKC without control and format characters; quotes and apostrophes are the plain ones."""
    shown = [
        " " if character.isspace() else character
        for character in text.translate(_QUOTES)
        if character.isspace() or character in _JOINERS or not _is_invisible(character)
    ]
    return unicodedata.normalize("NFKC", "".join(shown))


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf")


_MARKS = {"comma": ",", "period": ".", "questionmark": "?", "exclamationpoint": "!"}
_MARK_TAG = re.compile(r"\s*<(" + "|".join(_MARKS) + r")>", re.IGNORECASE)


def _punctuation_tags(text: str) -> str:
    """``<COMMA>`` and its kind, as GigaSpeech writes them, to the mark behind the word before."""
    return _MARK_TAG.sub(lambda match: _MARKS[match.group(1).lower()], text)


# A tag begins right behind its bracket, with a letter or one of a few signs: "3 < 5" is no tag.
_TAG = re.compile(r"<[/|#_]*[^\W\d_][^<>]*>")


def _markup(text: str) -> str:
    """Tags go, what they enclose stays; a tag within a tag goes, too."""
    while (without := _TAG.sub(" ", text)) != text:
        text = without
    return text


_REMARK = re.compile(r"\[[^\[\]]*\]|\{[^{}]*\}")
_STRAY_BRACKET = re.compile(r"[\[\]{}]")
_SOUNDS = (
    "applause|breath|breathing|cheering|clears throat|cough|coughing|coughs|crosstalk|inaudible|"
    "indiscernible|laugh|laughing|laughs|laughter|music|noise|pause|silence|sigh|sighs|"
    "unintelligible"
)
_SOUND = re.compile(rf"\(\s*(?:{_SOUNDS})\s*\)", re.IGNORECASE)


def _brackets(text: str) -> str:
    """``[ ... ]`` and ``{ ... }`` go with what they hold; round ones only around a sound.

    What stands in round brackets is often said: "he came (so they say) alone".
    """
    while (without := _SOUND.sub(" ", _REMARK.sub(" ", text))) != text:
        text = without
    return _STRAY_BRACKET.sub(" ", text)


_PERCENT = re.compile(r"\b(per)[\s-]+(cent)\b", re.IGNORECASE)


def _percent(text: str) -> str:
    return _PERCENT.sub(r"\1\2", text)


# Tokenised text takes words apart before the apostrophe; what follows must end there, so that
# "he said 's' twice" and "rock 'n' roll" stay as they are.
_STEMS = (
    "do|does|did|is|are|was|were|ca|wo|sha|could|should|would|has|have|had|must|might|may|need|"
    "ought|dare|ai"
)
_NOT = re.compile(rf"\b(?:{_STEMS})\s*n\s*'\s*t\b(?!')", re.IGNORECASE)
_ENDINGS = re.compile(r"(?<=\w)\s+'(s|re|ve|ll|d|m)\b(?!')", re.IGNORECASE)
_BEGINNINGS = re.compile(r"\b(o|y|ma)\s+'\s*(clock|all|am)\b(?!')", re.IGNORECASE)
_WHOLE = {"o": "clock", "y": "all", "ma": "am"}


def _contractions(text: str) -> str:
    text = _NOT.sub(lambda match: "".join(match.group().split()), text)
    text = _ENDINGS.sub(r"'\1", text)
    return _BEGINNINGS.sub(_joined_beginning, text)


def _joined_beginning(match: re.Match[str]) -> str:
    head, tail = match.groups()
    return f"{head}'{tail}" if _WHOLE[head.lower()] == tail.lower() else match.group()


_SPACE_BEFORE_MARK = re.compile(r"\s+([,.?!;:])(?=[\s,.?!;:]|$)")


def _spaces(text: str) -> str:
    """Single spaces, none at the ends, none before a mark that ends a word."""
    return " ".join(_SPACE_BEFORE_MARK.sub(r"\1", " ".join(text.split())).split())


#: The rules, in their order.
LABEL_STEPS: tuple[LabelStep, ...] = (
    LabelStep("unicode", _unicode),
    LabelStep("punctuation-tags", _punctuation_tags),
    LabelStep("markup", _markup),
    LabelStep("brackets", _brackets),
    LabelStep("percent", _percent),
    LabelStep("contractions", _contractions),
    LabelStep("spaces", _spaces),
)


def normalize_label(text: str) -> str:
    """Apply the steps in order; idempotent.

    >>> normalize_label("WE DO N'T KNOW <COMMA> [noise] DO WE <QUESTIONMARK>")
    "WE DON'T KNOW, DO WE?"
    """
    for step in LABEL_STEPS:
        text = step(text)
    return text


def normalize_spelling(text: str) -> str:
    """NFKC, plain quotes and single spaces alone: what an orthographic error rate compares."""
    return _spaces(_unicode(text))


_EDGE_MARKS = r"<\s*(?:unk|foreign|overlap)\s*>"
_EDGE_MARK = re.compile(rf"^\s*{_EDGE_MARKS}|{_EDGE_MARKS}\s*$", re.IGNORECASE)
_NOT_SCORED = re.compile(r"\bignore_time_segment_in_scoring\b", re.IGNORECASE)


def is_partly_transcribed(raw: str) -> bool:
    """Whether a raw transcript says that words at its edge, or all of them, were not written down.

    An ``<unk>``, ``<foreign>`` or ``<overlap>`` at the beginning or the end stands for speech in
    the audio that the label does not have; ``ignore_time_segment_in_scoring`` (TED-LIUM) stands
    for a stretch that nobody transcribed.
    """
    return bool(_EDGE_MARK.search(raw) or _NOT_SCORED.search(raw))


_SENTENCE_MARKS = re.compile(r"[,.?!;:\u3001\u3002\uff0c\uff01\uff1f]")
_MARK_WITHIN = re.compile(r"(?<=\w)[.,:](?=\w)")


def has_punctuation(text: str) -> bool:
    """Whether a text holds a punctuation mark outside numbers and abbreviations ("3.5")."""
    return bool(_SENTENCE_MARKS.search(_MARK_WITHIN.sub("", text)))
