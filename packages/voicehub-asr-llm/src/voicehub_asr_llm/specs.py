"""The training spec of LLM recognisers; no tensor library is imported here."""

from __future__ import annotations

from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask

FAMILY = "asr-llm"
MODEL_TYPE = "asr-llm"

ASR_LLM = ModelTrainingSpec(
    model_type=MODEL_TYPE,
    family=FAMILY,
    task=SpeechTask.AUTOMATIC_SPEECH_RECOGNITION,
    support=TrainingSupport.NATIVE,
    summary="A speech encoder, a projector, and a language model that writes the transcript.",
    module_paths=("model",),
    prediction_keys=("predictions",),
    config_class="voicehub_asr_llm.config:AsrLlmRunConfig",
    experiment_factory="voicehub_asr_llm.experiment:build_experiment",
    smoke_factory="voicehub_asr_llm.smoke:tiny_settings",
    training_default_model_name_or_path="Qwen/Qwen3-0.6B",
)
