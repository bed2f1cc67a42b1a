"""Training specs of model types and their registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voicehub._lazy import lazy_exports

if TYPE_CHECKING:
    from voicehub.specs.model import ModelTrainingSpec, TrainingRecipeKind
    from voicehub.specs.phase import PhaseKind, TrainingPhaseSpec
    from voicehub.specs.registry import (
        get_training_spec,
        list_training_specs,
        register_training_spec,
        unregister_training_spec,
    )

__all__ = [
    "ModelTrainingSpec",
    "PhaseKind",
    "TrainingPhaseSpec",
    "TrainingRecipeKind",
    "get_training_spec",
    "list_training_specs",
    "register_training_spec",
    "unregister_training_spec",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ModelTrainingSpec": "voicehub.specs.model",
        "PhaseKind": "voicehub.specs.phase",
        "TrainingPhaseSpec": "voicehub.specs.phase",
        "TrainingRecipeKind": "voicehub.specs.model",
        "get_training_spec": "voicehub.specs.registry",
        "list_training_specs": "voicehub.specs.registry",
        "register_training_spec": "voicehub.specs.registry",
        "unregister_training_spec": "voicehub.specs.registry",
    },
)
