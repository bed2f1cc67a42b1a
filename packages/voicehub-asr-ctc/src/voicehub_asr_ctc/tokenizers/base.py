"""What every tokenizer here offers."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

BLANK = "<pad>"
UNKNOWN = "<unk>"
WORD_DELIMITER = "|"
#: What subword pieces write for a space.
METASPACE = "\u2581"


@dataclass(frozen=True, slots=True)
class Encoding:
    """Labels of one text.

    Attributes:
        ids: labels; no blank among them.
        unknown: characters that have no token and were left out, in order.
    """

    ids: tuple[int, ...]
    unknown: tuple[str, ...] = ()


class CTCTokenizer(ABC):
    """From text to labels and back.

    Attributes:
        kind: name in configurations and files.
        tokens: token strings by id.
        blank_id: id of the blank, which is also the padding token.
    """

    kind: ClassVar[str]
    tokens: tuple[str, ...]
    blank_id: int

    def __len__(self) -> int:
        """Number of tokens, blank included: the width of the model's output."""
        return len(self.tokens)

    def encode(self, text: str) -> Encoding:
        """Return the labels of a text whose white space is single spaces.

        Characters without a token are left out and returned; the model is never trained to write
        a token that stands for nothing.
        """
        unknown = tuple(character for character in text if not self.knows(character))
        if unknown:
            left = "".join(character for character in text if self.knows(character))
            text = " ".join(left.split())
        return Encoding(self._encode(text), unknown)

    @abstractmethod
    def knows(self, character: str) -> bool:
        """Whether the tokens can spell a character."""

    @abstractmethod
    def _encode(self, text: str) -> tuple[int, ...]:
        """Labels of a text of known characters."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of collapsed labels: repeats joined and blanks removed already."""

    @property
    @abstractmethod
    def surfaces(self) -> tuple[str, ...]:
        """What each token writes, by id: a space begins a word; "" for what writes nothing."""

    @property
    def characters(self) -> frozenset[str]:
        """Characters that the tokens can write, without white space."""
        return frozenset(c for surface in self.surfaces for c in surface if not c.isspace())

    @abstractmethod
    def save(self, directory: Path) -> dict[str, Any]:
        """Write the tokenizer's files and return what ``tokenizer.json`` of ours says of them."""

    @abstractmethod
    def to_transformers(self, model_type: str) -> Any:
        """Return the tokenizer of transformers that decodes alike; loads transformers.

        Args:
            model_type: ``model_type`` of the transformers model that it goes with.
        """

    def fingerprint(self) -> str:
        """SHA-256 (hex) of kind, tokens and blank: what ids mean."""
        content = json.dumps([self.kind, list(self.tokens), self.blank_id], ensure_ascii=False)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
