"""One token a character."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub_asr_ctc.tokenizers.base import BLANK, UNKNOWN, WORD_DELIMITER, CTCTokenizer

VOCABULARY_FILE = "vocab.json"


class CharacterTokenizer(CTCTokenizer):
    """Characters; the space between words is the token ``|``.

    Args:
        tokens: token strings by id: the blank, the word delimiter, perhaps ``<unk>`` (which no
            text is given as a label), and single characters.
        blank: which of them is the blank.
    """

    kind = "characters"

    def __init__(self, tokens: Sequence[str], *, blank: str = BLANK) -> None:
        self.tokens = tuple(tokens)
        special = {blank, UNKNOWN, WORD_DELIMITER}
        long = [token for token in self.tokens if len(token) != 1 and token not in special]
        if blank not in self.tokens or len(set(self.tokens)) != len(self.tokens) or long:
            raise ConfigurationError(
                f"a character vocabulary needs the blank {blank!r}, single characters and no "
                f"token twice; got {list(self.tokens)[:8]}{' ...' if len(tokens) > 8 else ''}."
            )
        self.blank = blank
        self.blank_id = self.tokens.index(blank)
        self._ids = {t: i for i, t in enumerate(self.tokens) if t not in (blank, UNKNOWN)}
        if WORD_DELIMITER in self._ids:
            self._ids[" "] = self._ids[WORD_DELIMITER]

    @classmethod
    def from_characters(
        cls, characters: Sequence[str], *, with_unknown: bool = False
    ) -> CharacterTokenizer:
        """Build a vocabulary: blank, word delimiter, ``<unk>`` if asked for, sorted characters."""
        head = [BLANK, WORD_DELIMITER, *([UNKNOWN] if with_unknown else [])]
        return cls([*head, *sorted(set(characters) - {" ", WORD_DELIMITER})])

    def knows(self, character: str) -> bool:
        return character in self._ids and character != WORD_DELIMITER

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._ids[character] for character in text)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.surfaces[i] for i in ids).strip()

    @property
    def surfaces(self) -> tuple[str, ...]:
        written = {WORD_DELIMITER: " ", self.blank: "", UNKNOWN: ""}
        return tuple(written.get(token, token) for token in self.tokens)

    def save(self, directory: Path) -> dict[str, Any]:
        vocabulary = {token: i for i, token in enumerate(self.tokens)}
        text = json.dumps(vocabulary, ensure_ascii=False, indent=1)
        (directory / VOCABULARY_FILE).write_text(text + "\n", encoding="utf-8")
        return {"file": VOCABULARY_FILE, "blank": self.blank}

    @classmethod
    def load(cls, directory: Path, settings: Mapping[str, Any]) -> CharacterTokenizer:
        """Read what ``save`` wrote."""
        content = json.loads((directory / settings["file"]).read_text(encoding="utf-8"))
        return cls(sorted(content, key=content.__getitem__), blank=settings["blank"])

    def to_transformers(self, model_type: str) -> Any:
        from voicehub_hf.tokenization import ctc_tokenizer

        return ctc_tokenizer(
            model_type,
            self.tokens,
            pad_token=self.blank,
            unk_token=UNKNOWN,
            word_delimiter_token=WORD_DELIMITER,
        )
