"""Token ids by a ``VitsTokenizer``, with what has no token counted."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.text.phonemes import Phonemizer


@dataclass(frozen=True)
class Encoded:
    """A text as ids.

    Attributes:
        ids: blanks included where the tokenizer puts them in.
        symbols: ids that are no blanks.
        unknown: symbols without a token, counted.
    """

    ids: tuple[int, ...]
    symbols: int
    unknown: Counter[str] = field(default_factory=Counter)


class TextFrontEnd:
    """Encodes text as plain transformers would.

    Phonemes come from espeak-ng where the tokenizer wants them (``phonemize``), or where
    ``phonemes`` names a language.

    Args:
        tokenizer: ``VitsTokenizer``.
        phonemes: language whose phonemes the vocabulary spells; None reads the tokenizer's own
            setting, which knows American English alone.
    """

    def __init__(self, tokenizer: Any, phonemes: str | None = None) -> None:
        self.tokenizer = tokenizer
        self.phonemes = phonemes or ("en-us" if tokenizer.phonemize else None)
        self._phonemizer: Phonemizer | None = None

    def __len__(self) -> int:
        return int(self.tokenizer.vocab_size)

    @property
    def pad_id(self) -> int:
        """What batches are padded with; masked, so that its value does not matter."""
        return 0

    def encode(self, text: str) -> Encoded:
        """Return the ids of a text; symbols without a token are left out and counted."""
        spoken = self.spell(text)
        table = self.tokenizer.encoder
        known = [table[symbol] for symbol in spoken if symbol in table]
        unknown = Counter(symbol for symbol in spoken if symbol not in table)
        ids = known
        if self.tokenizer.add_blank:
            ids = [0] * (2 * len(known) + 1)
            ids[1::2] = known
        return Encoded(tuple(ids), len(known), unknown)

    def require(self, text: str, where: str) -> Encoded:
        """Encode, and refuse a text of which nothing is left.

        Raises:
            DataError: no symbol of the text has a token.
        """
        encoded = self.encode(text)
        if encoded.symbols == 0:
            shown = "".join(sorted(symbol for symbol in self.tokenizer.encoder if len(symbol) == 1))
            raise DataError(
                f"{where}: no symbol of {text!r} has a token, so nothing would be said. The "
                f"vocabulary knows {shown!r}: is the text in another script or language?"
            )
        return encoded

    def spell(self, text: str) -> str:
        """The string whose characters are looked up: phonemes, or text in the vocabulary's case."""
        if self.phonemes is not None:
            if self._phonemizer is None:
                self._phonemizer = Phonemizer(self.phonemes)
            return self._phonemizer(text)
        tokenizer = self.tokenizer
        if tokenizer.is_uroman:
            _require_uroman()
            text, _ = tokenizer.prepare_for_tokenization(text, normalize=False)
        if tokenizer.normalize:
            text = tokenizer._preprocess_char(tokenizer.normalize_text(text)).strip()
        return text

    def fingerprint(self) -> str:
        """SHA-256 of vocabulary and settings."""
        tokenizer = self.tokenizer
        settings = (tokenizer.add_blank, tokenizer.normalize, tokenizer.is_uroman, self.phonemes)
        text = json.dumps([sorted(tokenizer.encoder.items()), settings], ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def save(self, directory: Path) -> None:
        """Write the tokenizer's files; plain transformers reads them."""
        self.tokenizer.save_pretrained(directory)


def load_front_end(source: str | Path, phonemes: str | None = None, **fetch: Any) -> TextFrontEnd:
    """Read the tokenizer of a checkpoint directory or Hub id.

    Raises:
        ConfigurationError: it has none.
    """
    from transformers import VitsTokenizer

    try:
        tokenizer = VitsTokenizer.from_pretrained(str(source), **fetch)
    except (OSError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{source} has no tokenizer of VITS (vocab.json, tokenizer_config.json): {error}. "
            "Build one from the training text: model.text.kind=characters."
        ) from error
    return TextFrontEnd(tokenizer, phonemes)


def _require_uroman() -> None:
    from transformers.utils import is_uroman_available

    if not is_uroman_available():
        raise ConfigurationError(
            "This checkpoint's text is romanised by uroman, which is not installed. Install it "
            "with: pip install uroman. Without it every letter outside ASCII would be dropped."
        )
