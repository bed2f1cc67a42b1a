"""Speech data: manifests, decoding, checks, filters, augmentation, features, metrics.

Importing this package loads nothing else; names resolve when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "AudioInfo": "audio",
    "LogMel": "features",
    "Manifest": "manifest",
    "ManifestRow": "manifest",
    "SpeechDataset": "dataset",
    "TextNormalizer": "text",
    "WerCounts": "metrics",
    "align_words": "metrics",
    "audio_info": "audio",
    "character_error_rate": "metrics",
    "check_manifest": "check",
    "fill_durations": "durations",
    "filter_rows": "filters",
    "griffin_lim": "features",
    "load_audio": "audio",
    "read_manifest": "manifest",
    "word_error_rate": "metrics",
    "write_manifest": "manifest",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__
