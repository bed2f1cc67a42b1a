"""Text features that need no download: hashed pieces of words, a fixed number of tokens a text.

Each token's vector sums signed unit entries of its character n-grams (Weinberger et al. 2009, the
hashing trick), scaled to length 1; a quarter of the channels says where the token stands. Equal
texts have equal features, like texts similar ones, and the empty text has zeros.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from voicehub_data.config.base import DataModel
from voicehub_flow.features.base import TextExtractor
from voicehub_flow.features.registry import read_settings, write_settings

_GRAMS = (1, 2, 3)


class HashedTextSettings(DataModel):
    """Sizes.

    Attributes:
        tokens: of every text; longer texts are cut.
        channels: of a token, of which a quarter is for its place.
        unit: what a token is.
        lower: lower-case first.
    """

    tokens: int = Field(default=16, ge=1)
    channels: int = Field(default=64, ge=8)
    unit: Literal["word", "character"] = "word"
    lower: bool = True


class HashedText(TextExtractor):
    """The extractor in memory."""

    name = "hashed"

    def __init__(self, settings: HashedTextSettings, source: str = "(built in)") -> None:
        self.config, self.source = settings, source
        self.tokens, self.channels = settings.tokens, settings.channels
        self._placed = 2 * (settings.channels // 8)
        self._hashed = settings.channels - self._placed

    def encode(self, texts: Sequence[str]) -> Tensor:
        features = torch.zeros(len(texts), self.tokens, self.channels)
        places = self._places()
        for number, text in enumerate(texts):
            units = self._units(text)[: self.tokens]
            for position, unit in enumerate(units):
                features[number, position, : self._hashed] = self._vector(unit)
                features[number, position, self._hashed :] = places[position]
        return features

    def settings(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json")

    def save(self, directory: Path) -> bool:
        write_settings(directory, self.name, self.settings())
        return True

    def _units(self, text: str) -> list[str]:
        text = " ".join((text.lower() if self.config.lower else text).split())
        return list(text) if self.config.unit == "character" else text.split()

    def _vector(self, unit: str) -> Tensor:
        vector = torch.zeros(self._hashed)
        marked = f"^{unit}$"
        for size in _GRAMS:
            for start in range(len(marked) - size + 1):
                digest = hashlib.blake2b(marked[start : start + size].encode(), digest_size=8)
                number = int.from_bytes(digest.digest(), "big")
                vector[(number >> 1) % self._hashed] += 1.0 if number & 1 else -1.0
        length: Tensor = vector.norm()
        return vector / length.clamp(min=1e-6)

    def _places(self) -> Tensor:
        half = self._placed // 2
        rates = torch.exp(-math.log(10_000.0) * torch.arange(half) / max(1, half))
        angles = torch.arange(self.tokens)[:, None] * rates
        return torch.cat((angles.sin(), angles.cos()), 1)


def build(directory: Path | None, settings: Mapping[str, Any]) -> HashedText:
    """For the registry."""
    if directory is not None:
        stored = read_settings(directory, HashedText.name)
        return HashedText(HashedTextSettings.load({**stored, **settings}), str(directory))
    return HashedText(HashedTextSettings.load(settings))
