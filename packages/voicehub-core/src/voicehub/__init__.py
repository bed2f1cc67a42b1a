"""VoiceHub: train speech models.

Public names resolve when first used; importing this package loads no tensor library and no
plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voicehub._lazy import lazy_exports

if TYPE_CHECKING:
    from voicehub.adapters.outputs import SpeechTrainingOutput, TTSTrainingOutput
    from voicehub.models.auto import AutoModelForSpeechRecognition, AutoModelForTextToSpeech
    from voicehub.models.lifecycle import (
        PreTrainedRecognitionModel,
        PreTrainedSpeechModel,
        PreTrainedTTSModel,
    )
    from voicehub.specs.registry import get_training_spec, list_training_specs
    from voicehub.trainer.arguments import TrainingArguments
    from voicehub.trainer.callbacks import EarlyStoppingCallback, TrainerCallback
    from voicehub.trainer.trainer import Trainer

__all__ = [
    "AutoModelForSpeechRecognition",
    "AutoModelForTextToSpeech",
    "EarlyStoppingCallback",
    "PreTrainedRecognitionModel",
    "PreTrainedSpeechModel",
    "PreTrainedTTSModel",
    "SpeechTrainingOutput",
    "TTSTrainingOutput",
    "Trainer",
    "TrainerCallback",
    "TrainingArguments",
    "__version__",
    "get_training_spec",
    "list_training_specs",
]

__version__: str

_lazy_getattr, __dir__ = lazy_exports(
    __name__,
    {
        "AutoModelForSpeechRecognition": "voicehub.models.auto",
        "AutoModelForTextToSpeech": "voicehub.models.auto",
        "EarlyStoppingCallback": "voicehub.trainer.callbacks",
        "PreTrainedRecognitionModel": "voicehub.models.lifecycle",
        "PreTrainedSpeechModel": "voicehub.models.lifecycle",
        "PreTrainedTTSModel": "voicehub.models.lifecycle",
        "SpeechTrainingOutput": "voicehub.adapters.outputs",
        "TTSTrainingOutput": "voicehub.adapters.outputs",
        "Trainer": "voicehub.trainer.trainer",
        "TrainerCallback": "voicehub.trainer.callbacks",
        "TrainingArguments": "voicehub.trainer.arguments",
        "get_training_spec": "voicehub.specs.registry",
        "list_training_specs": "voicehub.specs.registry",
    },
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        globals()["__version__"] = version("voicehub-core")
        return globals()["__version__"]
    return _lazy_getattr(name)
