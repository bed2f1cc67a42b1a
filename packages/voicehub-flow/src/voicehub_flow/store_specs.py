"""The training specs of audio generation from feature stores; no tensor library is imported."""

from __future__ import annotations

from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask

FAMILY = "flow"


def _spec(model_type: str, support: TrainingSupport, summary: str) -> ModelTrainingSpec:
    return ModelTrainingSpec(
        model_type=model_type,
        family=FAMILY,
        task=SpeechTask.AUDIO_GENERATION,
        support=support,
        summary=summary,
        module_paths=("model",),
        prediction_keys=("predictions",),
        adapter_factory="voicehub_flow.multimodal.adapter:create_adapter",
        config_class="voicehub_flow.store.config:StoreRunConfig",
        experiment_factory="voicehub_flow.store.experiment:build_experiment",
        smoke_factory="voicehub_flow.store.smoke:tiny_settings",
    )


MMAUDIO = _spec(
    "mmaudio",
    TrainingSupport.NATIVE,
    "MMAudio: a multimodal transformer over video, text and audio latents of a feature store.",
)
#: Published for inference alone: how its weights were trained is not known.
MMAUDIO_LARGE_44K_V2 = _spec(
    "mmaudio-large-44k-v2",
    TrainingSupport.INFERENCE_ONLY,
    "MMAudio large_44k_v2, whose authors publish weights and no way to train them.",
)
