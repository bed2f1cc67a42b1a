"""Texts of rows as a model that speaks them reads them."""

from __future__ import annotations

from collections.abc import Sequence

from voicehub_data.manifest.rows import ManifestRow
from voicehub_data.text.normalizer import TextNormalizer, get_normalizer


def spoken_texts(rows: Sequence[ManifestRow], normalizer: str | TextNormalizer) -> list[str]:
    """The normalised texts of rows, a single space between words and none around them."""
    normalize = get_normalizer(normalizer)
    return [" ".join(normalize(row.text).split()) for row in rows]
