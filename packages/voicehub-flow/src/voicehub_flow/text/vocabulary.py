"""Symbols and their rows in the text embedding, kept as published: ``vocab.txt``, one a line."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from voicehub.errors import CheckpointError, DataError

VOCABULARY_FILE = "vocab.txt"
#: Row 0 is the filler, so that symbol n has row n + 1.
_FIRST = 1


class Encoded(NamedTuple):
    """A text.

    Attributes:
        ids: rows of the text embedding.
        unknown: characters without a row, counted; they are left out.
    """

    ids: tuple[int, ...]
    unknown: Counter[str]


class Vocabulary:
    """One row a symbol; texts are spelt character by character.

    Published vocabularies also hold longer symbols (pinyin syllables), which keep their rows.

    Args:
        symbols: each once, in the order of their rows.
        lower: lower-case texts first.
    """

    def __init__(self, symbols: Iterable[str], *, lower: bool = False) -> None:
        self.symbols, self.lower = tuple(symbols), lower
        self._rows = {symbol: row for row, symbol in enumerate(self.symbols, _FIRST)}

    @classmethod
    def build(cls, texts: Iterable[str], *, lower: bool = True) -> Vocabulary:
        """Collect the characters of texts.

        Raises:
            DataError: there are none.
        """
        found = {symbol for text in texts for symbol in (text.lower() if lower else text)}
        if not found:
            raise DataError("the training text has no characters, so no vocabulary can be built.")
        return cls(sorted(found), lower=lower)

    @classmethod
    def read(cls, path: Path, *, lower: bool = False) -> Vocabulary:
        """Read a ``vocab.txt``.

        Raises:
            CheckpointError: it is missing, empty, no UTF-8, or names a symbol twice.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(
                f"{path} cannot be read: {error}. It holds a symbol of the text embedding on each "
                "line, and lies beside the weights of a published checkpoint."
            ) from error
        symbols = text.removesuffix("\n").split("\n") if text else []
        seen: dict[str, int] = {}
        for line, symbol in enumerate(symbols, 1):
            if symbol == "" or symbol in seen:
                what = f"{symbol!r} as line {seen[symbol]} does" if symbol else "nothing"
                raise CheckpointError(
                    f"{path}, line {line}: holds {what}; every line names another symbol, and its "
                    "number is the row of the text embedding."
                )
            seen[symbol] = line
        if not symbols:
            raise CheckpointError(f"{path} names no symbol.")
        return cls(symbols, lower=lower)

    def save(self, directory: Path) -> None:
        """Write ``vocab.txt`` into a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{symbol}\n" for symbol in self.symbols)
        (directory / VOCABULARY_FILE).write_text(text, encoding="utf-8")

    def __len__(self) -> int:
        return len(self.symbols)

    def spelt(self, text: str) -> str:
        """A text as its characters are looked up."""
        return text.lower() if self.lower else text

    def encode(self, text: str) -> Encoded:
        """Rows of the characters of a text."""
        spelt = self.spelt(text)
        ids = tuple(self._rows[symbol] for symbol in spelt if symbol in self._rows)
        return Encoded(ids, Counter(symbol for symbol in spelt if symbol not in self._rows))

    def require(self, text: str, where: str) -> Encoded:
        """Rows of a text that must be sayable.

        Raises:
            DataError: no character of it but white space has a row.
        """
        encoded = self.encode(text)
        if not self.encode("".join(text.split())).ids:
            raise DataError(
                f"{where}: no character of {text!r} has a token, so nothing would be said. Is the "
                "text in another script than the vocabulary?"
            )
        return encoded

    def missing(self, texts: Iterable[str]) -> Counter[str]:
        """Characters of texts without a row, counted."""
        found: Counter[str] = Counter()
        for text in texts:
            found.update(symbol for symbol in self.spelt(text) if symbol not in self._rows)
        return found

    def extended(self, symbols: Iterable[str]) -> Vocabulary:
        """The same with further symbols behind the others, sorted; known ones are left out."""
        new = sorted(set(symbols) - self._rows.keys())
        return Vocabulary((*self.symbols, *new), lower=self.lower)

    def fingerprint(self) -> str:
        """SHA-256 (hex) of whatever decides the rows."""
        text = json.dumps([self.symbols, self.lower])
        return hashlib.sha256(text.encode()).hexdigest()
