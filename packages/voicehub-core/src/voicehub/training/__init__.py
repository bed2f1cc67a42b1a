"""The documented import paths of the training system, as lazy re-exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voicehub._lazy import lazy_exports

if TYPE_CHECKING:
    from voicehub.adapters.auto import AutoTrainingAdapter
    from voicehub.adapters.base import TrainingAdapter
    from voicehub.data.collate import DataCollatorForAudioTraining, DataCollatorForTTSTraining
    from voicehub.data.schema import AudioFieldSchema, TTSFieldSchema

__all__ = [
    "AudioFieldSchema",
    "AutoTrainingAdapter",
    "DataCollatorForAudioTraining",
    "DataCollatorForTTSTraining",
    "TTSFieldSchema",
    "TrainingAdapter",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AudioFieldSchema": "voicehub.data.schema",
        "AutoTrainingAdapter": "voicehub.adapters.auto",
        "DataCollatorForAudioTraining": "voicehub.data.collate",
        "DataCollatorForTTSTraining": "voicehub.data.collate",
        "TTSFieldSchema": "voicehub.data.schema",
        "TrainingAdapter": "voicehub.adapters.base",
    },
)
