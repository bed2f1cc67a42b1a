"""SentencePiece models (Kudo and Richardson 2018), given or trained."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub_asr_ctc.tokenizers.base import BLANK, METASPACE, CTCTokenizer

SENTENCE_PIECES_FILE = "sentencepiece.model"


class SentencePieceTokenizer(CTCTokenizer):
    """Pieces of a SentencePiece model behind a blank: label i + 1 is piece i.

    Args:
        model: serialised model.
    """

    kind = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        self.model = model
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = [self.processor.id_to_piece(i) for i in range(self.processor.get_piece_size())]
        self.tokens = (BLANK, *(piece if piece != BLANK else f"{BLANK}_piece" for piece in pieces))
        self.blank_id = 0
        self._unknown = self.processor.unk_id()
        self._known: dict[str, bool] = {}

    @classmethod
    def read(cls, path: str | Path) -> SentencePieceTokenizer:
        """Read a ``.model`` file.

        Raises:
            ConfigurationError: it is missing or no SentencePiece model.
        """
        path = Path(path).expanduser()
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise ConfigurationError(
                f"tokenizer.path: {path} cannot be read ({error.strerror})."
            ) from None
        except RuntimeError as error:
            raise ConfigurationError(
                f"tokenizer.path: {path} is no SentencePiece model ({error})."
            ) from None

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, algorithm: str) -> SentencePieceTokenizer:
        """Train on transcripts; ``vocab_size`` counts the blank and is an upper bound."""
        import sentencepiece

        out = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=out,
                vocab_size=vocab_size - 1,
                hard_vocab_limit=algorithm == "bpe",
                model_type=algorithm,
                character_coverage=1.0,
                normalization_rule_name="identity",
                unk_id=0,
                bos_id=-1,
                eos_id=-1,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise ConfigurationError(
                f"SentencePiece cannot train with tokenizer.vocab_size {vocab_size}: {error}"
            ) from None
        return cls(out.getvalue())

    def knows(self, character: str) -> bool:
        if character.isspace():
            return True
        if character not in self._known:
            self._known[character] = self._unknown not in self.processor.encode(character)
        return self._known[character]

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(i + 1 for i in self.processor.encode(text) if i != self._unknown)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.surfaces[i] for i in ids).strip()

    @cached_property
    def surfaces(self) -> tuple[str, ...]:
        sp = self.processor
        written = []
        for i, piece in enumerate(self.tokens[1:]):
            silent = sp.is_unknown(i) or sp.is_control(i) or sp.is_unused(i)
            written.append("" if silent else piece.replace(METASPACE, " "))
        return ("", *written)

    def save(self, directory: Path) -> dict[str, Any]:
        (directory / SENTENCE_PIECES_FILE).write_bytes(self.model)
        return {"file": SENTENCE_PIECES_FILE}

    @classmethod
    def load(cls, directory: Path, settings: Mapping[str, Any]) -> SentencePieceTokenizer:
        """Read what ``save`` wrote."""
        return cls((directory / settings["file"]).read_bytes())

    def to_transformers(self, model_type: str) -> Any:
        """Return a tokenizer with the same ids and texts.

        It decodes alike for every model. It encodes with the unigram algorithm, which is that of
        ``algorithm: unigram``; labels for training never come from it.
        """
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
        from transformers import ParakeetTokenizer

        sp = self.processor
        scores = [sp.get_score(i) for i in range(sp.get_piece_size())]
        pieces = [(BLANK, 0.0), *zip(self.tokens[1:], scores, strict=True)]
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=self._unknown + 1))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
        unknown = self.tokens[self._unknown + 1]
        make: Any = ParakeetTokenizer
        return make(tokenizer_object=tokenizer, pad_token=BLANK, unk_token=unknown)
