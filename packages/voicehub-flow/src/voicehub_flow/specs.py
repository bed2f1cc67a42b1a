"""The training spec of flow-matching text to speech; no tensor library is imported here."""

from __future__ import annotations

from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask

FAMILY = "flow"

F5TTS = ModelTrainingSpec(
    model_type="f5tts",
    aliases=("f5-tts",),
    family=FAMILY,
    task=SpeechTask.TEXT_TO_SPEECH,
    support=TrainingSupport.NATIVE,
    summary="F5-TTS: a transformer that fills in mel frames along a flow, given text and context.",
    module_paths=("model",),
    prediction_keys=("predictions",),
    config_class="voicehub_flow.config:F5TTSRunConfig",
    experiment_factory="voicehub_flow.tts.experiment:build_experiment",
    smoke_factory="voicehub_flow.smoke:tiny_settings",
    training_default_model_name_or_path="SWivid/F5-TTS",
)
