"""Give text of one case the capitals that it would be written with.

For every word the spellings that cased text has for it are counted, alone and beside the word
before and the word after (Lita et al. 2003, "tRuEcasIng", with independent neighbours). A word in
context gets the spelling w that maximises

    log p(w | before) + log p(w | after) - log p(w),    p(w | c) = (n(w, c) + a p(w)) / (n(c) + a)

Words at the beginning of a sentence are not counted, since everything is capital there. A word
that was never seen is lower case, or cased by its parts: the stem before an apostrophe.
Everything depends on the lower-case text alone, so truecasing twice is truecasing once.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voicehub.errors import DataError
from voicehub_data.files import write_file

FORMAT, VERSION = "voicehub-truecaser", 1

#: Weight of a word's own distribution against what was counted beside a neighbour.
PRIOR = 2.0
#: A text with so many letters, nearly all of one case, says nothing about case.
_ENOUGH_LETTERS, _NEARLY_ALL = 5, 0.9
#: Of cased text cut into pieces, at least so many have capitals.
_CASED_SHARE = 0.2

# A letter keeps the marks above and below it: the small letter of a capital may have one more.
_LETTERS = r"(?:[^\W_][\u0300-\u036f]*)+"
WORD = re.compile(rf"{_LETTERS}(?:['\u2019]{_LETTERS})*")
# Behind '!"' and '?"' a sentence often goes on: "Stop!" he said.
_SENTENCE_END = re.compile(r"\.[\"')\]]*\s|[?!]\s")
# A point behind one of these ends no sentence.
_ABBREVIATIONS = frozenset(
    {"mr", "mrs", "ms", "dr", "st", "prof", "gen", "col", "capt", "rev", "no"}
)

Spellings = dict[str, int]


@dataclass(frozen=True)
class Truecaser:
    """Counts of spellings, and how a text is cased with them.

    Attributes:
        words: lower-case word -> spelling -> count.
        before, after: ``"neighbour word"`` in lower case -> spelling of the word -> count.
        texts, tokens: how much text was read.
        skipped: texts in capitals throughout, which were not.
    """

    words: Mapping[str, Spellings]
    before: Mapping[str, Spellings] = field(default_factory=dict)
    after: Mapping[str, Spellings] = field(default_factory=dict)
    texts: int = 0
    tokens: int = 0
    skipped: int = 0

    def __call__(self, text: str) -> str:
        """Return the text with case restored; only the case of letters changes."""
        tokens = list(_tokens(text))
        lowered = [token.lower for token in tokens]
        pieces, end = [], 0
        for position, token in enumerate(tokens):
            pieces.append(text[end : token.start])
            spelled = self._spelling(lowered, position)
            spelled = _capitalised(spelled) if token.begins_sentence else spelled
            pieces.append(_with_apostrophes(spelled, text[token.start : token.end]))
            end = token.end
        return "".join([*pieces, text[end:]])

    def _spelling(self, lowered: list[str], position: int) -> str:
        word = lowered[position]
        counted = self.words.get(word)
        if counted is None:
            return self._by_parts(word)
        if len(counted) == 1:
            return next(iter(counted))
        total = sum(counted.values())
        contexts = []
        if position > 0:
            contexts.append(self.before.get(f"{lowered[position - 1]} {word}", {}))
        if position + 1 < len(lowered):
            contexts.append(self.after.get(f"{lowered[position + 1]} {word}", {}))

        def score(spelling: str) -> tuple[float, str]:
            own = counted[spelling] / total
            value = math.log(own)
            for context in contexts:
                share = (context.get(spelling, 0) + PRIOR * own) / (sum(context.values()) + PRIOR)
                value += math.log(share) - math.log(own)
            return value, spelling

        return max(counted, key=score)

    def _by_parts(self, word: str) -> str:
        """``i'd`` from ``i``, ``john's`` from ``john``; lower case where that is unknown, too."""
        head, mark, tail = word.partition("'")
        counted = self.words.get(head) if mark else None
        if counted is None:
            return word
        best = max(counted, key=lambda spelling: (counted[spelling], spelling))
        return f"{best}{mark}{tail}"

    # -- files -------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return what the file holds."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "texts": self.texts,
            "tokens": self.tokens,
            "skipped": self.skipped,
            "words": {word: dict(counted) for word, counted in self.words.items()},
            "before": {pair: dict(counted) for pair, counted in self.before.items()},
            "after": {pair: dict(counted) for pair, counted in self.after.items()},
        }

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the counts: another truecaser gives other labels."""
        content = json.dumps(self.to_json(), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write JSON.

        Raises:
            DataError: the file cannot be written.
        """
        content = json.dumps(self.to_json(), sort_keys=True, ensure_ascii=False, indent=0)
        write_file(Path(path), content.encode("utf-8"))

    @classmethod
    def load(cls, path: str | Path) -> Truecaser:
        """Read what ``save`` wrote.

        Raises:
            DataError: there is no such file, or it is no truecaser.
        """
        return _load(Path(path))


def fit_truecaser(texts: Iterable[str], *, min_count: int = 1) -> Truecaser:
    """Count spellings in cased text.

    Args:
        texts: sentences or paragraphs, in the case they should be written in.
        min_count: spellings that were seen fewer times are left out.

    Raises:
        DataError: too few texts are cased, or nothing is left to count.
    """
    counts = _Counts()
    for text in texts:
        counts.add(" ".join(text.split()))
    read = counts.texts + counts.skipped
    if counts.cased < _CASED_SHARE * read or not counts.cased:
        raise DataError(
            f"{counts.cased} of {read} texts have letters of both cases: a truecaser learns from "
            "cased text, with the capitals that it should restore."
        )
    words = _pruned(counts.words, min_count)
    if not words:
        raise DataError(
            f"no spelling was seen {min_count} times in {counts.texts} texts; give more text, or a "
            "lower min_count."
        )
    # Neighbours matter only where a word has more than one spelling.
    doubtful = {word for word, counted in words.items() if len(counted) > 1}
    return Truecaser(
        # A word that is only ever lower case is what an unknown word is.
        {word: counted for word, counted in words.items() if set(counted) != {word}},
        _beside(counts.before, words, doubtful),
        _beside(counts.after, words, doubtful),
        counts.texts,
        counts.tokens,
        counts.skipped,
    )


def is_mono_case(text: str) -> bool:
    """Whether a text of five letters or more has over 90 % capitals, or none at all."""
    letters = [character for character in text if character.isalpha()]
    if len(letters) < _ENOUGH_LETTERS:
        return False
    upper = sum(letter.isupper() for letter in letters)
    return upper == 0 or upper > _NEARLY_ALL * len(letters)


@dataclass(frozen=True, slots=True)
class _Token:
    start: int
    end: int
    lower: str
    begins_sentence: bool


def _tokens(text: str) -> Iterator[_Token]:
    """Words with their places; the gap before one says whether a sentence begins with it."""
    before = ""
    end = 0
    for match in WORD.finditer(text):
        lower = match.group().lower().replace("\u2019", "'")
        gap = text[end : match.start()]
        abbreviated = len(before) == 1 or before in _ABBREVIATIONS
        ends = _SENTENCE_END.search(gap) is not None
        begins = not before or (ends and not (abbreviated and gap.lstrip().startswith(".")))
        yield _Token(match.start(), match.end(), lower, begins)
        before, end = lower, match.end()


class _Counts:
    """What a pass over cased text counts."""

    def __init__(self) -> None:
        self.words: dict[str, Counter[str]] = {}
        self.before: dict[tuple[str, str], Counter[str]] = {}
        self.after: dict[tuple[str, str], Counter[str]] = {}
        self.texts = self.tokens = self.skipped = self.cased = 0

    def add(self, text: str) -> None:
        if not any(character.isalpha() for character in text):
            return
        mono = is_mono_case(text)
        # In capitals: a heading. Without any: the middle of a sentence, perhaps.
        if mono and text.lower() != text:
            self.skipped += 1
            return
        self.texts += 1
        self.cased += not mono
        tokens = list(_tokens(text))
        for position, token in enumerate(tokens):
            self.tokens += 1
            spelling = text[token.start : token.end].replace("\u2019", "'")
            if token.begins_sentence or spelling.lower() != token.lower:
                continue
            word = token.lower
            self.words.setdefault(word, Counter())[spelling] += 1
            if position > 0:
                pair = (tokens[position - 1].lower, word)
                self.before.setdefault(pair, Counter())[spelling] += 1
            if position + 1 < len(tokens):
                pair = (tokens[position + 1].lower, word)
                self.after.setdefault(pair, Counter())[spelling] += 1


def _pruned(counts: Mapping[str, Counter[str]], min_count: int) -> dict[str, Spellings]:
    kept = {
        word: {s: n for s, n in sorted(counted.items()) if n >= min_count}
        for word, counted in sorted(counts.items())
    }
    return {word: counted for word, counted in kept.items() if counted}


def _beside(
    counts: Mapping[tuple[str, str], Counter[str]],
    words: Mapping[str, Spellings],
    doubtful: set[str],
) -> dict[str, Spellings]:
    kept = {
        f"{neighbour} {word}": {s: n for s, n in sorted(counted.items()) if s in words[word]}
        for (neighbour, word), counted in sorted(counts.items())
        if word in doubtful
    }
    return {pair: counted for pair, counted in kept.items() if counted}


def _with_apostrophes(spelled: str, written: str) -> str:
    """The spelling with the apostrophes of the text, which may be curly."""
    if "\u2019" not in written or len(spelled) != len(written):
        return spelled
    return "".join(w if w == "\u2019" else s for s, w in zip(spelled, written, strict=True))


def _capitalised(word: str) -> str:
    """First letter as a capital, where it has one that goes back to it."""
    first = word[:1].upper()
    return first + word[1:] if first.lower() == word[:1].lower() and len(first) == 1 else word


def _load(path: Path) -> Truecaser:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such truecaser.{_HOW}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no truecaser can be read from it ({error}).{_HOW}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(f"{path}: this is no truecaser.{_HOW}")
    if content.get("version") != VERSION:
        raise DataError(
            f"{path}: a truecaser of version {content.get('version')!r}; expected {VERSION}. Fit "
            "it again with this version."
        )
    tables = [_table(path, content, name) for name in ("words", "before", "after")]
    sizes = [int(content.get(name, 0)) for name in ("texts", "tokens", "skipped")]
    words, before, after = tables
    texts, tokens, skipped = sizes
    return Truecaser(words, before, after, texts, tokens, skipped)


_HOW = " `voicehub data truecaser fit` makes one from cased text."


def _table(path: Path, content: Mapping[str, Any], name: str) -> dict[str, Spellings]:
    """One table of counts, checked: a spelling that is another word would change the text."""
    table = content.get(name)
    if not isinstance(table, dict):
        raise DataError(f"{path}: {name} is missing or no table.{_HOW}")
    for key, counted in table.items():
        word = key.rpartition(" ")[2]
        sound = isinstance(counted, dict) and all(
            s.lower() == word and isinstance(n, int) and n > 0 for s, n in counted.items()
        )
        if not sound or not counted:
            raise DataError(
                f"{path}: {name}[{key!r}] is {counted!r}; expected spellings of {word!r} with "
                f"counts over 0.{_HOW}"
            )
    return table
