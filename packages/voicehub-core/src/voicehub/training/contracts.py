"""Support levels, phases, contexts and outputs: the vocabulary of recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voicehub._lazy import lazy_exports

if TYPE_CHECKING:
    from voicehub.adapters.context import TrainingContext
    from voicehub.adapters.outputs import SpeechTrainingOutput, TTSTrainingOutput
    from voicehub.specs.model import TrainingRecipeKind
    from voicehub.specs.phase import PhaseKind, TrainingPhaseSpec
    from voicehub.specs.support import TrainingSupport
    from voicehub.specs.task import SpeechTask

__all__ = [
    "PhaseKind",
    "SpeechTask",
    "SpeechTrainingOutput",
    "TTSTrainingOutput",
    "TrainingContext",
    "TrainingPhaseSpec",
    "TrainingRecipeKind",
    "TrainingSupport",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "PhaseKind": "voicehub.specs.phase",
        "SpeechTask": "voicehub.specs.task",
        "SpeechTrainingOutput": "voicehub.adapters.outputs",
        "TTSTrainingOutput": "voicehub.adapters.outputs",
        "TrainingContext": "voicehub.adapters.context",
        "TrainingPhaseSpec": "voicehub.specs.phase",
        "TrainingRecipeKind": "voicehub.specs.model",
        "TrainingSupport": "voicehub.specs.support",
    },
)
