"""The training specs of codec language models; no tensor library is imported here."""

from __future__ import annotations

from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask

FAMILY = "codec-lm"
FLAT, DELAY, DEPTH = "codec-causal-lm", "musicgen", "csm"


def _native(
    model_type: str, config_class: str, summary: str, start_from: str, *architectures: str
) -> ModelTrainingSpec:
    return ModelTrainingSpec(
        model_type=model_type,
        family=FAMILY,
        task=SpeechTask.TEXT_TO_SPEECH,
        support=TrainingSupport.NATIVE,
        summary=summary,
        module_paths=("model",),
        prediction_keys=("predictions",),
        architectures=architectures,
        config_class=f"voicehub_codec_lm.config:{config_class}",
        experiment_factory="voicehub_codec_lm.experiment:build_experiment",
        smoke_factory="voicehub_codec_lm.smoke:tiny_settings",
        training_default_model_name_or_path=start_from,
    )


def _preprocessed(model_type: str, summary: str, *architectures: str) -> ModelTrainingSpec:
    """A forward of the library's own with a loss, over tensors that the user has prepared."""
    return ModelTrainingSpec(
        model_type=model_type,
        family=FAMILY,
        task=SpeechTask.TEXT_TO_SPEECH,
        support=TrainingSupport.PREPROCESSED,
        summary=summary,
        module_paths=("model", "model.model"),
        architectures=architectures,
    )


CODEC_CAUSAL_LM = _native(
    FLAT,
    "FlatRunConfig",
    "Any causal language model with audio codes behind its text vocabulary.",
    "meta-llama/Llama-3.2-1B",
)
MUSICGEN = _native(
    DELAY,
    "DelayRunConfig",
    "MusicGen decoder: a head for each codebook, under the delay pattern.",
    "facebook/musicgen-small",
    "MusicgenForConditionalGeneration",
    "MusicgenForCausalLM",
)
CSM = _native(
    DEPTH,
    "DepthRunConfig",
    "CSM: a backbone over frames, a depth decoder over the codebooks of one.",
    "sesame/csm-1b",
    "CsmForConditionalGeneration",
)
PARLERTTS = _preprocessed(
    "parlertts", "Parler-TTS of its own package, over prepared input ids, prompts and labels."
)
DIA = _preprocessed(
    "dia", "Dia, over prepared text ids, delayed codes and labels.", "DiaForConditionalGeneration"
)
ORPHEUS = _preprocessed(
    "orpheus", "Orpheus: a Llama over prepared sequences of text and SNAC tokens."
)
LLASA = _preprocessed(
    "llasa", "Llasa: a Llama over prepared sequences of text and X-Codec 2 tokens."
)
