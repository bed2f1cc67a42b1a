"""How truthfully a model type can be trained."""

from __future__ import annotations

from enum import Enum
from typing import Any

from voicehub.errors import RecipeError
from voicehub.suggest import did_you_mean

_ALIASES = {
    "inference": "inference-only",
    "inferenceonly": "inference-only",
    "source-native": "native",
    "backend-native": "native",
}


class TrainingSupport(str, Enum):
    """Support level of a model type.

    ``native``: a differentiable, model-native loss that the adapter executes.
    ``preprocessed``: a differentiable forward; the data set holds model-shaped tensors.
    ``custom``: needs model-specific orchestration, hence a specialised adapter.
    ``inference-only``: no verified gradient path.
    """

    NATIVE = "native"
    PREPROCESSED = "preprocessed"
    CUSTOM = "custom"
    INFERENCE_ONLY = "inference-only"

    @classmethod
    def coerce(cls, value: Any) -> TrainingSupport:
        """Turn a string such as ``"Inference_Only"`` into a level.

        Raises:
            TypeError: ``value`` is neither a level nor a string.
            RecipeError: the string names no level.
        """
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise TypeError(
                f"Training support must be a string or TrainingSupport, got {type(value).__name__}."
            )
        name = value.strip().lower().replace("_", "-")
        name = _ALIASES.get(name, name)
        try:
            return cls(name)
        except ValueError:
            levels = [level.value for level in cls]
            raise RecipeError(
                f"Unknown training support {value!r}; expected one of {', '.join(levels)}."
                f"{did_you_mean(value, levels)}"
            ) from None

    @property
    def is_turnkey(self) -> bool:
        """Whether the adapter of the spec alone can train it."""
        return self in (TrainingSupport.NATIVE, TrainingSupport.PREPROCESSED)

    @property
    def is_trainable(self) -> bool:
        """Whether any recipe can train it; false for ``inference-only`` alone."""
        return self is not TrainingSupport.INFERENCE_ONLY
