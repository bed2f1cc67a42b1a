"""The tokenizer that a checkpoint of transformers comes with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub_asr_ctc.tokenizers.base import METASPACE, CTCTokenizer

TOKENIZER_FOLDER = "tokenizer"


class PretrainedTokenizer(CTCTokenizer):
    """Wraps a CTC tokenizer of transformers.

    Args:
        tokenizer: a tokenizer whose ``decode`` takes ``group_tokens``.
        num_outputs: width of the model's output, where it exceeds the vocabulary.
        blank_id: the model's blank; the tokenizer's padding token by default.

    Raises:
        ConfigurationError: the model's blank is not the tokenizer's padding token.
    """

    kind = "checkpoint"

    def __init__(
        self, tokenizer: Any, *, num_outputs: int | None = None, blank_id: int | None = None
    ) -> None:
        self.tokenizer = tokenizer
        size = max(tokenizer.get_vocab().values()) + 1
        width = size if num_outputs is None else num_outputs
        names = {i: token for token, i in tokenizer.get_vocab().items()}
        self.tokens = tuple(names.get(i, f"<unused {i}>") for i in range(width))
        self.blank_id = int(tokenizer.pad_token_id if blank_id is None else blank_id)
        if tokenizer.pad_token_id != self.blank_id:
            raise ConfigurationError(
                f"the model's blank is {self.blank_id} (pad_token_id of its config), the "
                f"tokenizer's padding token {tokenizer.pad_token!r} is {tokenizer.pad_token_id}. "
                "They must be the same token, or transcripts come out garbled."
            )
        self._delimiter = getattr(tokenizer, "word_delimiter_token", None)
        self._known: dict[str, bool] = {}

    def knows(self, character: str) -> bool:
        if character.isspace():
            return True
        if character not in self._known:
            ids = self.tokenizer(character, add_special_tokens=False).input_ids
            silent = {self.tokenizer.unk_token_id, self.blank_id, None}
            spelt = [i for i in ids if self.tokens[i] not in (METASPACE, self._delimiter)]
            within = all(i is not None and i < len(self.tokens) for i in ids)
            self._known[character] = within and bool(spelt) and not silent & set(spelt)
        return self._known[character]

    def _encode(self, text: str) -> tuple[int, ...]:
        ids = self.tokenizer(text, add_special_tokens=False).input_ids if text else []
        return tuple(int(i) for i in ids if i not in (self.blank_id, self.tokenizer.unk_token_id))

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False, group_tokens=False)
        return text.strip()

    @cached_property
    def surfaces(self) -> tuple[str, ...]:
        silent = set(self.tokenizer.all_special_tokens) | {self.tokens[self.blank_id]}
        written = []
        for token in self.tokens:
            if (token in silent and token != self._delimiter) or token.startswith("<unused "):
                written.append("")
            elif token == self._delimiter:
                written.append(" ")
            else:
                lower = getattr(self.tokenizer, "do_lower_case", False)
                shown = token.replace(METASPACE, " ")
                written.append(shown.lower() if lower else shown)
        return tuple(written)

    def save(self, directory: Path) -> dict[str, Any]:
        self.tokenizer.save_pretrained(directory / TOKENIZER_FOLDER)
        settings = {"folder": TOKENIZER_FOLDER, "num_outputs": len(self.tokens)}
        return {**settings, "blank_id": self.blank_id}

    @classmethod
    def load(cls, directory: Path, settings: Mapping[str, Any]) -> PretrainedTokenizer:
        """Read what ``save`` wrote."""
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(
            directory / settings["folder"], local_files_only=True
        )
        return cls(tokenizer, num_outputs=settings["num_outputs"], blank_id=settings["blank_id"])

    def to_transformers(self, model_type: str) -> Any:
        return self.tokenizer
