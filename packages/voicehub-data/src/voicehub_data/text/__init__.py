"""Text normalisation by named presets; the name belongs to every error rate that is printed."""

from __future__ import annotations

from voicehub_data.text.normalizer import (
    TextNormalizer,
    get_normalizer,
    list_normalizers,
    register_normalizer,
)

__all__ = ["TextNormalizer", "get_normalizer", "list_normalizers", "register_normalizer"]
