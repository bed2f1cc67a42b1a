"""``train`` or ``eval``, checked."""

from __future__ import annotations

from typing import Literal

from voicehub.errors import ConfigurationError


def as_role(text: str) -> Literal["train", "eval"]:
    """The role that a text names.

    Raises:
        ConfigurationError: it names none.
    """
    if text == "train":
        return "train"
    if text == "eval":
        return "eval"
    raise ConfigurationError(f"--role {text!r}: expected train or eval.")
