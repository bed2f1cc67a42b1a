"""Checks of a checkpoint's name and configuration that need none of its weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from voicehub.errors import UnsupportedTrainingError

_SERVING_MARKERS = (
    ".gguf",
    "-gguf",
    "_gguf",
    "/gguf",
    "llama.cpp",
    "llama_cpp",
    ".onnx",
    ".engine",
)
# Bounded on the left, so that "point4" or "hint8" in a path is no quantisation.
_QUANTISED_NAME = re.compile(r"(?<![a-z0-9])(int4|int8|4bit|8bit|4-bit|8-bit|gptq|awq)")
_QUANTISED_KEYS = (
    "is_quantized",
    "load_in_4bit",
    "load_in_8bit",
    "quantization_config",
    "quantization_method",
    "hf_quantizer",
)
_NESTED_KEYS = ("model_kwargs", "additional_model_config")
_SERVING_FILES = (".gguf", ".onnx", ".engine")
_WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


def check_not_serving_only(name_or_path: str) -> None:
    """Refuse names, files and directories of formats that only serve.

    Raises:
        UnsupportedTrainingError: GGUF, ONNX or an engine file.
    """
    shown = _checked_name(name_or_path)
    marker = next((marker for marker in _SERVING_MARKERS if marker in shown), None)
    if marker is None:
        marker = _only_serving_weights(Path(name_or_path))
    if marker is not None:
        raise UnsupportedTrainingError(
            f"{name_or_path!r} is a serving-only format ({marker}); it has no gradient. Train "
            "from the original checkpoint."
        )


def check_full_precision(name_or_path: str, configuration: Mapping[str, Any]) -> None:
    """Refuse quantised checkpoints by name and by configuration.

    Args:
        name_or_path: Hub id or local path.
        configuration: The checkpoint's configuration and the loading options.

    Raises:
        UnsupportedTrainingError: the name or a key says that the weights are quantised.
    """
    match = _QUANTISED_NAME.search(_checked_name(name_or_path))
    if match:
        raise UnsupportedTrainingError(
            f"{name_or_path!r} names a quantised checkpoint ({match[1]}), which needs "
            "quantization-aware training. Train from the full-precision checkpoint."
        )
    for path, value in _quantisation_settings(configuration):
        raise UnsupportedTrainingError(
            f"{name_or_path!r} is set up quantised ({path} = {value!r}); training needs "
            "full-precision weights. Remove the setting, or choose another checkpoint."
        )


def _checked_name(name_or_path: str) -> str:
    """The part of the name that says what the checkpoint is: of a local path, its last part."""
    path = Path(name_or_path)
    return (path.name if path.exists() else name_or_path).lower()


def _only_serving_weights(path: Path) -> str | None:
    if not path.is_dir():
        return None
    suffixes = {item.suffix.lower() for item in path.iterdir() if item.is_file()}
    if suffixes & set(_WEIGHT_FILES):
        return None
    return next((suffix for suffix in _SERVING_FILES if suffix in suffixes), None)


def _quantisation_settings(
    configuration: Mapping[str, Any], prefix: str = "", depth: int = 2
) -> Iterator[tuple[str, Any]]:
    for key in _QUANTISED_KEYS:
        value = configuration.get(key)
        if value:
            yield f"{prefix}{key}", value
    if depth:
        for key in _NESTED_KEYS:
            value = configuration.get(key)
            if isinstance(value, Mapping):
                yield from _quantisation_settings(value, f"{prefix}{key}.", depth - 1)
