"""English number words to digits: "two thousand and five" -> 2005, "twenty dollars" -> $20.

A small grammar over lower-case words. A run of number words is one number where English reads it as
one ("one hundred and five"), as a year ("nineteen eighty four" -> 1984), or digit by digit ("one
two three" -> 123). Numbers that are written in digits already are never joined to others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONES = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9,
}  # fmt: skip
_TEENS = {
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15,
    "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19,
}  # fmt: skip
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
    "eighty": 80, "ninety": 90,
}  # fmt: skip
_SCALES = {
    "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
_ORDINALS = {
    "zeroth": ("zero", "th"), "first": ("one", "st"), "second": ("two", "nd"),
    "third": ("three", "rd"), "fifth": ("five", "th"),
    "eighth": ("eight", "th"), "ninth": ("nine", "th"), "twelfth": ("twelve", "th"),
}  # fmt: skip
_CURRENCY = {
    "dollar": "$", "dollars": "$", "pound": "\u00a3", "pounds": "\u00a3",
    "euro": "\u20ac", "euros": "\u20ac", "cent": "\u00a2", "cents": "\u00a2",
}  # fmt: skip
_DIGITS = re.compile(r"\d+(?:\.\d+)?")


@dataclass(slots=True)
class _Number:
    """Digits so far, and what may follow them."""

    text: str
    suffix: str = ""


def numbers_to_digits(text: str) -> str:
    """Replace number words in lower-case, space-separated English text."""
    words = text.split()
    out: list[str] = []
    index = 0
    while index < len(words):
        number, used = _read_number(words, index)
        if number is None:
            out.append(words[index])
            index += 1
            continue
        index += used
        index += _attach_unit(words, index, number)
        out.append(number.text + number.suffix)
    return " ".join(out)


def _attach_unit(words: list[str], index: int, number: _Number) -> int:
    """Join a currency or percent word behind a number to it; returns the words used."""
    if index >= len(words) or number.suffix:
        return 0
    sign = _CURRENCY.get(words[index])
    if sign is not None:
        number.text = sign + number.text
        return 1
    if words[index] == "percent":
        number.text += "%"
        return 1
    if words[index : index + 2] == ["per", "cent"]:
        number.text += "%"
        return 2
    return 0


def _read_number(words: list[str], start: int) -> tuple[_Number | None, int]:
    """The number that starts at a word, and how many words it takes."""
    groups: list[str] = []
    index = start
    suffix = ""
    while index < len(words) and not suffix:
        group, used, suffix = _read_group(words, index)
        written = _DIGITS.fullmatch(words[index]) is not None
        if group is None or (groups and (written or not _continues(groups[-1], group))):
            suffix = ""
            break
        groups.append(group)
        index += used
        if written:
            break
    if not groups:
        return None, 0
    number = _Number("".join(groups), suffix)
    if not suffix:
        if "." not in number.text:
            fraction, used = _read_fraction(words, index)
            number.text += fraction
            index += used
        number.text, used = _scaled(number.text, words, index)
        index += used
    return number, index - start


def _continues(before: str, group: str) -> bool:
    """Whether two groups are read as one number: single digits, or halves of a year."""
    if len(before) == 1 and len(group) == 1:
        return True
    return len(before) == 2 and len(group) == 2 and before[0] != "0"


def _read_fraction(words: list[str], index: int) -> tuple[str, int]:
    """``point five`` behind a number."""
    if index + 1 >= len(words) or words[index] != "point":
        return "", 0
    digits = ""
    for word in words[index + 1 :]:
        if word not in _ONES:
            break
        digits += str(_ONES[word])
    return ("." + digits, 1 + len(digits)) if digits else ("", 0)


def _read_group(words: list[str], start: int) -> tuple[str | None, int, str]:
    """One cardinal or ordinal: its digits, the words used, and an ordinal's suffix."""
    if _DIGITS.fullmatch(words[start]):
        return words[start], 1, ""
    total, current, index, suffix = 0, -1, start, ""
    while index < len(words) and not suffix:
        word, suffix = _cardinal(words[index])
        value = _ONES.get(word, _TEENS.get(word, _TENS.get(word)))
        if value == 0 and current < 0:
            # Nothing follows a zero within a number: "zero seven" is two digits.
            return "0", index + 1 - start, suffix
        if value is not None and _fits(current, value):
            current = value if current < 0 else current + value
        elif word == "hundred" and 0 < current < 100:
            current *= 100
        elif word in _SCALES and word != "hundred" and current > 0:
            total, current = total + current * _SCALES[word], 0
        elif word == "and" and _joins(words, index, total, current):
            index += 1
            continue
        else:
            suffix = ""
            break
        index += 1
    if current < 0:
        return None, 0, ""
    return str(total + current), index - start, suffix


def _scaled(digits: str, words: list[str], index: int) -> tuple[str, int]:
    """``2.5 million`` and the like: digits with the scale words at ``index`` applied."""
    used = 0
    while index + used < len(words) and words[index + used] in _SCALES:
        whole, _, fraction = digits.partition(".")
        power = len(str(_SCALES[words[index + used]])) - 1
        if len(fraction) > power:
            break
        digits = str(int(whole + fraction.ljust(power, "0")))
        used += 1
    return digits, used


def _cardinal(word: str) -> tuple[str, str]:
    """The cardinal that a word is or orders, and the ordinal suffix."""
    if word in _ORDINALS:
        return _ORDINALS[word]
    if word.endswith("ieth") and word[:-4] + "y" in _TENS:
        return word[:-4] + "y", "th"
    stem = word.removesuffix("th")
    if stem != word and (stem in _ONES or stem in _TEENS or stem in _SCALES):
        return stem, "th"
    return word, ""


def _fits(current: int, value: int) -> bool:
    """Whether a value may be added: to nothing, a ten, a hundred, or behind a scale."""
    if current < 0 or current == 0:
        return current < 0 or value > 0
    if current % 100 == 0:
        return value > 0
    return current % 10 == 0 and current % 100 >= 20 and 0 < value < 10


def _joins(words: list[str], index: int, total: int, current: int) -> bool:
    """``and`` inside a number: behind a hundred or a scale, before a smaller number."""
    if index + 1 >= len(words) or (current % 100 != 0 and current > 0) or total + current <= 0:
        return False
    word, _ = _cardinal(words[index + 1])
    return word in _ONES or word in _TEENS or word in _TENS
