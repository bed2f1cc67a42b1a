"""Byte-pair encoding with the ``tokenizers`` library (Sennrich et al. 2016)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.errors import ConfigurationError
from voicehub_asr_ctc.tokenizers.base import BLANK, METASPACE, CTCTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SUBWORDS_FILE = "subwords.json"


class SubwordTokenizer(CTCTokenizer):
    """Pieces of words; a piece that begins a word starts with U+2581.

    Args:
        tokenizer: of the ``tokenizers`` library, with the blank among its tokens.
    """

    kind = "bpe"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.tokens = tuple(sorted(vocabulary, key=vocabulary.__getitem__))
        if sorted(vocabulary.values()) != list(range(len(vocabulary))):
            raise ConfigurationError("the subword vocabulary's ids have gaps or repeat.")
        if BLANK not in vocabulary:
            raise ConfigurationError(f"the subword vocabulary holds no blank {BLANK!r}.")
        self.blank_id = vocabulary[BLANK]
        self._known = {t for t in self.tokens if len(t) == 1 and t != METASPACE} | {" "}

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> SubwordTokenizer:
        """Learn merges from transcripts; every character in them becomes a token.

        Raises:
            ConfigurationError: ``vocab_size`` has no room for the characters and the blank.
        """
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        texts = list(texts)
        alphabet = sorted({c for text in texts for c in text if not c.isspace()} | {METASPACE})
        if vocab_size < len(alphabet) + 1:
            raise ConfigurationError(
                f"tokenizer.vocab_size {vocab_size} has no room for {len(alphabet)} characters "
                f"and the blank; give at least {len(alphabet) + 1}."
            )
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[BLANK],
            initial_alphabet=alphabet,
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    def knows(self, character: str) -> bool:
        return character in self._known

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids) if text else ()

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.surfaces[i] for i in ids).strip()

    @cached_property
    def surfaces(self) -> tuple[str, ...]:
        return tuple("" if t == BLANK else t.replace(METASPACE, " ") for t in self.tokens)

    def save(self, directory: Path) -> dict[str, Any]:
        self.tokenizer.save(str(directory / SUBWORDS_FILE))
        return {"file": SUBWORDS_FILE}

    @classmethod
    def load(cls, directory: Path, settings: Mapping[str, Any]) -> SubwordTokenizer:
        """Read what ``save`` wrote."""
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_file(str(directory / settings["file"])))

    def to_transformers(self, model_type: str) -> Any:
        from transformers import ParakeetTokenizer

        make: Any = ParakeetTokenizer
        return make(tokenizer_object=self.tokenizer, pad_token=BLANK)
