"""An English normaliser that makes spellings of the same words equal before they are scored.

The steps are those of the Whisper paper (Radford et al. 2022, appendix C): bracketed remarks and
fillers go, contractions and titles are expanded, numbers become digits, British spellings become
American, and symbols and punctuation go unless they belong to a number. The rules are our own, so
figures may differ in rare cases from those of the original; where they must not, use the preset
``whisper-english``.
"""

from __future__ import annotations

import re
import unicodedata

from voicehub_data.text.numbers import numbers_to_digits
from voicehub_data.text.spelling import americanise

_BRACKETED = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|\([^()]*\)")
_FILLERS = re.compile(r"\b(?:h+m+|m+h+m+|mm+|uh+|um+|erm+)\b")
_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u00b4": "'", "`": "'"})

_WORDS = {
    "won't": "will not",
    "can't": "can not",
    "cannot": "can not",
    "shan't": "shall not",
    "ain't": "is not",
    "let's": "let us",
    "y'all": "you all",
    "ma'am": "madam",
    "o'clock": "o clock",
    "wanna": "want to",
    "gonna": "going to",
    "gotta": "got to",
    "gimme": "give me",
    "lemme": "let me",
    "imma": "i am going to",
    "i'ma": "i am going to",
    "woulda": "would have",
    "coulda": "could have",
    "shoulda": "should have",
    "mr": "mister",
    "mrs": "missus",
    "ms": "miss",
    "dr": "doctor",
    "prof": "professor",
    "capt": "captain",
    "gov": "governor",
    "gen": "general",
    "sen": "senator",
    "rep": "representative",
    "pres": "president",
    "rev": "reverend",
    "hon": "honorable",
    "asst": "assistant",
    "assoc": "associate",
    "lt": "lieutenant",
    "col": "colonel",
    "jr": "junior",
    "sr": "senior",
    "esq": "esquire",
    "st": "saint",
}
_WORD = re.compile(
    r"\b(?:" + "|".join(re.escape(word) for word in sorted(_WORDS, key=len, reverse=True)) + r")\b"
)
# 's and 'd before a participle are "has" and "had", else "is" and "would".
_PERFECT = re.compile(r"'(s|d)(?= (?:been|gone|done|got|had|become|seen|taken|come)\b)")
_SUFFIXES = (
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"'re\b"), " are"),
    (re.compile(r"'s\b"), " is"),
    (re.compile(r"'d\b"), " would"),
    (re.compile(r"'ll\b"), " will"),
    (re.compile(r"'ve\b"), " have"),
    (re.compile(r"'m\b"), " am"),
    (re.compile(r"'em\b"), " them"),
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_CLOCK = re.compile(r"(?<=\d):(?=\d)")
_LETTERS = str.maketrans(
    {"\u0153": "oe", "\u00e6": "ae", "\u00f8": "o", "\u00df": "ss", "\u0142": "l", "\u0111": "d"}
)
# Currency and percent signs, and the point of a decimal, belong to numbers.
_KEPT_SYMBOLS = ".%$\u00a2\u20ac\u00a3"
_LONE_SYMBOL = re.compile(r"[.$\u00a2\u20ac\u00a3](?!\d)|(?<!\d)%")
_LONE_POINT = re.compile(r"(?<!\d)\.(?!\d)|\.(?!\d)")


def normalize_english(text: str) -> str:
    """Normalise an English transcript or hypothesis; idempotent for ordinary text.

    >>> normalize_english("Mr. O'Neil won't pay twenty-five dollars, um, for the colour!")
    'mister o neil will not pay $25 for the color'
    """
    text = unicodedata.normalize("NFKC", text).lower().translate(_QUOTES)
    text = _BRACKETED.sub(" ", text)
    text = _FILLERS.sub(" ", text)
    text = re.sub(r"\s+'", "'", text)
    text = _WORD.sub(lambda match: _WORDS[match.group()], text)
    text = _PERFECT.sub(lambda match: " has" if match.group(1) == "s" else " had", text)
    for pattern, replacement in _SUFFIXES:
        text = pattern.sub(replacement, text)
    text = _CLOCK.sub(" ", _THOUSANDS.sub("", text))
    text = _LONE_POINT.sub(" ", text)
    text = _strip_symbols(text)
    text = numbers_to_digits(text)
    text = americanise(text)
    return " ".join(_LONE_SYMBOL.sub(" ", text).split())


def _strip_symbols(text: str) -> str:
    """Drop diacritics; symbols and punctuation become spaces, but for those of numbers."""
    decomposed = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    return "".join(
        character
        if character in _KEPT_SYMBOLS
        else ""
        if unicodedata.category(character) == "Mn"
        else " "
        if unicodedata.category(character)[0] in "MSPC"
        else character
        for character in decomposed
    )
