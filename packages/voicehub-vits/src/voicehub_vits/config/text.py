"""Where token ids come from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from voicehub.trainer.section import Section


class CheckpointTextConfig(Section):
    """The tokenizer that the checkpoint comes with."""

    kind: Literal["checkpoint"] = "checkpoint"


class CharactersTextConfig(Section):
    """One token a character of the training text.

    Attributes:
        min_count: characters seen fewer times get no token, and are reported.
        lower: lower-case first.
        add_blank: a blank between all tokens, as published.
    """

    kind: Literal["characters"] = "characters"
    min_count: int = Field(default=1, ge=1)
    lower: bool = True
    add_blank: bool = True


class PhonemesTextConfig(Section):
    """One token a phoneme symbol of the training text, by espeak-ng (the extra ``phonemes``).

    Attributes:
        language: voice of espeak-ng, such as ``en-us``.
        min_count, add_blank: as for characters.
    """

    kind: Literal["phonemes"] = "phonemes"
    language: str = "en-us"
    min_count: int = Field(default=1, ge=1)
    add_blank: bool = True


TextConfig = Annotated[
    CheckpointTextConfig | CharactersTextConfig | PhonemesTextConfig, Field(discriminator="kind")
]
