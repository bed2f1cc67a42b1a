"""From a manifest's text to the text that labels spell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from voicehub_data.text import get_normalizer

TextFunction = Callable[[str], str]
_CASES: dict[str, TextFunction] = {"keep": str, "lower": str.lower, "upper": str.upper}


class TranscriptNormalizer:
    """A named normaliser, then a case, then single spaces.

    Args:
        normalizer: preset of ``voicehub_data.text``.
        case: ``keep``, ``lower`` or ``upper``.
    """

    def __init__(self, normalizer: str = "none", case: str = "keep") -> None:
        self.name = normalizer
        self.case = case
        self._normalize = get_normalizer(normalizer)
        self._case = _CASES[case]

    def __call__(self, text: str) -> str:
        return " ".join(self._case(self._normalize(text)).split())

    def settings(self) -> dict[str, Any]:
        """Return JSON that identifies it."""
        return {"normalizer": self.name, "case": self.case}
