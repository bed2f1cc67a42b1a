"""One token a character of the training text, and one a speaker."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from voicehub.errors import DataError
from voicehub_codec_lm.text.prompts import Encoded, Prompts, write_settings

#: Token 0 pads; speakers follow, then characters.
_FIRST = 1


class CharacterPrompts(Prompts):
    """The speaker's token, then the characters'.

    Args:
        symbols: characters, each once.
        speakers: names, each once.
        lower: lower-case texts first.
    """

    kind = "characters"

    def __init__(
        self, symbols: tuple[str, ...], speakers: tuple[str, ...] = (), *, lower: bool = True
    ) -> None:
        self.symbols, self.speakers, self.lower = symbols, speakers, lower
        first = _FIRST + len(speakers)
        self._ids = {symbol: first + place for place, symbol in enumerate(symbols)}
        self._speakers = {name: _FIRST + place for place, name in enumerate(speakers)}

    @classmethod
    def build(
        cls, texts: Iterable[str], speakers: Iterable[str] = (), *, lower: bool = True
    ) -> CharacterPrompts:
        """Collect the characters of texts.

        Raises:
            DataError: there are none.
        """
        found = {symbol for text in texts for symbol in (text.lower() if lower else text)}
        if not found:
            raise DataError("the training text has no characters, so no vocabulary can be built.")
        return cls(tuple(sorted(found)), tuple(sorted(set(speakers))), lower=lower)

    def __len__(self) -> int:
        return _FIRST + len(self.speakers) + len(self.symbols)

    @property
    def pad_id(self) -> int:
        return 0

    def encode(self, text: str, speaker: str | None) -> Encoded:
        spoken = text.lower() if self.lower else text
        ids = [] if speaker is None else [self._speakers[speaker]]
        ids += [self._ids[symbol] for symbol in spoken if symbol in self._ids]
        return Encoded(tuple(ids), Counter(s for s in spoken if s not in self._ids))

    def fingerprint(self) -> str:
        text = json.dumps([self.symbols, self.speakers, self.lower])
        return hashlib.sha256(text.encode()).hexdigest()

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        write_settings(
            directory,
            {
                "kind": self.kind,
                "symbols": list(self.symbols),
                "speakers": list(self.speakers),
                "lower": self.lower,
            },
        )
