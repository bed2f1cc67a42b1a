"""What turns text into prompt tokens."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from voicehub.errors import CheckpointError, ConfigurationError, DataError
from voicehub.suggest import did_you_mean

PROMPTS_FILE = "prompts.json"


class Encoded(NamedTuple):
    """A prompt.

    Attributes:
        ids: tokens.
        unknown: symbols of the text without a token, counted; they are left out.
    """

    ids: tuple[int, ...]
    unknown: Counter[str]


class Prompts(ABC):
    """Text and speaker to tokens.

    Attributes:
        kind: ``characters`` or ``checkpoint``.
        speakers: names that training has seen; empty where it knows of none.
    """

    kind: str
    speakers: tuple[str, ...]

    @abstractmethod
    def __len__(self) -> int:
        """Tokens of the vocabulary."""

    @property
    @abstractmethod
    def pad_id(self) -> int:
        """What batches are padded with; masked, so that its value does not matter."""

    @abstractmethod
    def encode(self, text: str, speaker: str | None) -> Encoded:
        """Tokens of a prompt.

        Args:
            text: what is said.
            speaker: one of ``speakers``; None where there are none.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 (hex) of whatever decides the tokens."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write files that :func:`load_prompts` reads."""

    def require(self, text: str, speaker: str | int | None, where: str) -> tuple[int, ...]:
        """Tokens of a text that must be sayable.

        Raises:
            DataError: no symbol of the text has a token.
            ConfigurationError: the speaker is not known, or none is named where there are several.
        """
        encoded = self.encode(text, self.speaker(speaker, where))
        if not text.strip() or sum(encoded.unknown.values()) >= len("".join(text.split())):
            raise DataError(
                f"{where}: no symbol of {text!r} has a token, so nothing would be said. Is the "
                "text in another script than the training text?"
            )
        return encoded.ids

    def speaker(self, name: str | int | None, where: str) -> str | None:
        """The name of a speaker given by name or number.

        Raises:
            ConfigurationError: see :meth:`require`.
        """
        known = self.speakers
        if not known:
            if name is not None:
                raise ConfigurationError(
                    f"{where}: speaker {name!r} was asked for, but this model knows no speakers."
                )
            return None
        shown = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
        if name is None:
            if len(known) == 1:
                return known[0]
            raise ConfigurationError(
                f"{where}: the model has {len(known)} speakers; name one of {shown}."
            )
        if str(name) in known:
            return str(name)
        if str(name).isdigit() and int(name) < len(known):
            return known[int(name)]
        raise ConfigurationError(
            f"{where}: the model has no speaker {name!r}, only {shown}."
            f"{did_you_mean(str(name), known)}"
        )


def write_settings(directory: Path, settings: dict[str, Any]) -> None:
    """Write the file that names the kind."""
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    (directory / PROMPTS_FILE).write_text(text, encoding="utf-8")


def load_prompts(directory: Path) -> Prompts:
    """Read what ``save`` wrote.

    Raises:
        CheckpointError: the files are missing or damaged.
    """
    from voicehub_codec_lm.text.characters import CharacterPrompts
    from voicehub_codec_lm.text.pretrained import PretrainedPrompts

    path = directory / PROMPTS_FILE
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        if settings["kind"] == CharacterPrompts.kind:
            return CharacterPrompts(
                tuple(settings["symbols"]),
                tuple(settings["speakers"]),
                lower=bool(settings["lower"]),
            )
        return PretrainedPrompts.read(directory, tuple(settings["speakers"]), settings["template"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
