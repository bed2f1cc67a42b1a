"""The training specs of the speaker embedders; no tensor library is imported here."""

from __future__ import annotations

from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask

FAMILY = "xvector"
_EXPERIMENT = "voicehub_xvector.experiment:build_experiment"


def _spec(
    model_type: str, summary: str, config_class: str, start_from: str | None = None
) -> ModelTrainingSpec:
    return ModelTrainingSpec(
        model_type=model_type,
        family=FAMILY,
        task=SpeechTask.SPEAKER_EMBEDDING,
        support=TrainingSupport.NATIVE,
        summary=summary,
        module_paths=("model",),
        prediction_keys=("predictions",),
        config_class=f"voicehub_xvector.config:{config_class}",
        experiment_factory=_EXPERIMENT,
        smoke_factory="voicehub_xvector.smoke:tiny_settings",
        training_default_model_name_or_path=start_from,
    )


def _pretrained(model_type: str, summary: str, start_from: str) -> ModelTrainingSpec:
    return _spec(model_type, summary, "EncoderRunConfig", start_from)


XVECTOR_LOGMEL = _spec(
    "xvector-logmel",
    "ResNet1d, ResNet34, ECAPA or Conformer on log-mel features, from random weights.",
    "LogMelRunConfig",
)
XVECTOR_WAV2VEC2 = _pretrained(
    "xvector-wav2vec2", "wav2vec 2.0 with a speaker head.", "facebook/wav2vec2-base"
)
XVECTOR_HUBERT = _pretrained(
    "xvector-hubert", "HuBERT with a speaker head.", "facebook/hubert-large-ll60k"
)
XVECTOR_WAVLM = _pretrained(
    "xvector-wavlm", "WavLM with a speaker head.", "microsoft/wavlm-base-plus"
)
XVECTOR_WHISPER = _pretrained(
    "xvector-whisper", "The encoder of Whisper with a speaker head.", "openai/whisper-small"
)
XVECTOR_WAV2VEC2_BERT = _pretrained(
    "xvector-wav2vec2-bert", "W2V-BERT 2.0 with a speaker head.", "facebook/w2v-bert-2.0"
)
