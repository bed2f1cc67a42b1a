"""The training specs of the CTC recognisers; no tensor library is imported here."""

from __future__ import annotations

from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask

FAMILY = "asr-ctc"
_EXPERIMENT = "voicehub_asr_ctc.experiment:build_experiment"


def _spec(
    model_type: str, summary: str, architectures: tuple[str, ...], config_class: str, **more: str
) -> ModelTrainingSpec:
    return ModelTrainingSpec(
        model_type=model_type,
        family=FAMILY,
        task=SpeechTask.AUTOMATIC_SPEECH_RECOGNITION,
        support=TrainingSupport.NATIVE,
        summary=summary,
        module_paths=("model",),
        prediction_keys=("logits",),
        architectures=architectures,
        config_class=f"voicehub_asr_ctc.config:{config_class}",
        experiment_factory=_EXPERIMENT,
        smoke_factory="voicehub_asr_ctc.smoke:tiny_settings",
        training_default_model_name_or_path=more.get("start_from"),
    )


def _pretrained(
    model_type: str, architecture: str, summary: str, start_from: str
) -> ModelTrainingSpec:
    return _spec(model_type, summary, (architecture,), "PretrainedRunConfig", start_from=start_from)


CTC_LOGMEL = _spec(
    "ctc-logmel",
    "Small log-mel encoder trained from random weights, on a CPU if need be.",
    (),
    "LogMelRunConfig",
)
CTC_WAV2VEC2 = _pretrained(
    "ctc-wav2vec2", "Wav2Vec2ForCTC", "wav2vec 2.0 with a CTC head.", "facebook/wav2vec2-base"
)
CTC_HUBERT = _pretrained(
    "ctc-hubert", "HubertForCTC", "HuBERT with a CTC head.", "facebook/hubert-large-ll60k"
)
CTC_WAVLM = _pretrained(
    "ctc-wavlm", "WavLMForCTC", "WavLM with a CTC head.", "microsoft/wavlm-base-plus"
)
CTC_WAV2VEC2_BERT = _pretrained(
    "ctc-wav2vec2-bert",
    "Wav2Vec2BertForCTC",
    "W2V-BERT 2.0 with a CTC head.",
    "facebook/w2v-bert-2.0",
)
CTC_PARAKEET = _pretrained(
    "ctc-parakeet",
    "ParakeetForCTC",
    "Parakeet (FastConformer) with a CTC head.",
    "nvidia/parakeet-ctc-0.6b",
)
