"""The tokenizer of a language model, with the speaker named in the text."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub_codec_lm.text.prompts import Encoded, Prompts, write_settings

#: How a speaker is named in the text, as Orpheus does.
TEMPLATE = "{speaker}: {text}"


class PretrainedPrompts(Prompts):
    """A tokenizer of transformers.

    Args:
        tokenizer: fast or slow.
        speakers: names; the template is used where there are any.
        template: of the prompt, with ``{speaker}`` and ``{text}``.

    Raises:
        ConfigurationError: the template leaves one of the two out.
    """

    kind = "checkpoint"

    def __init__(
        self, tokenizer: Any, speakers: tuple[str, ...] = (), template: str = TEMPLATE
    ) -> None:
        if speakers and ("{speaker}" not in template or "{text}" not in template):
            raise ConfigurationError(
                f"model.text.template {template!r} must hold {{speaker}} and {{text}}."
            )
        self.tokenizer, self.speakers, self.template = tokenizer, speakers, template

    @classmethod
    def read(
        cls,
        source: str | Path,
        speakers: tuple[str, ...] = (),
        template: str = TEMPLATE,
        **fetch: Any,
    ) -> PretrainedPrompts:
        """Read the tokenizer of a checkpoint directory or Hub id.

        Raises:
            ConfigurationError: there is none.
        """
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(source), **fetch)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{source} has no tokenizer: {error}. Build one from the training text: "
                "model.text.kind=characters."
            ) from error
        return cls(tokenizer, speakers, template)

    def __len__(self) -> int:
        return len(self.tokenizer)

    @property
    def pad_id(self) -> int:
        return 0

    def encode(self, text: str, speaker: str | None) -> Encoded:
        spoken = text
        if speaker is not None:
            spoken = self.template.replace("{speaker}", speaker).replace("{text}", text)
        ids = tuple(int(token) for token in self.tokenizer(spoken)["input_ids"])
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        count = 0 if unknown is None else sum(token == unknown for token in ids)
        return Encoded(ids, Counter({str(self.tokenizer.unk_token): count} if count else {}))

    def fingerprint(self) -> str:
        vocabulary = sorted(self.tokenizer.get_vocab().items())
        text = json.dumps([vocabulary, self.speakers, self.template])
        return hashlib.sha256(text.encode()).hexdigest()

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save_pretrained(directory)
        settings = {"kind": self.kind, "speakers": list(self.speakers), "template": self.template}
        write_settings(directory, settings)
