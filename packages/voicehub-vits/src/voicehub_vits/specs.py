"""The training specs of VITS; no tensor library is imported here."""

from __future__ import annotations

from dataclasses import replace

from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import PhaseKind, TrainingPhaseSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask

FAMILY = "vits"
#: Periods of the five period discriminators, in samples (Kong et al. 2020).
PERIODS = (2, 3, 5, 7, 11)
DISCRIMINATOR, DURATION_DISCRIMINATOR, GENERATOR = (
    "discriminator",
    "duration_discriminator",
    "generator",
)
INPUTS = (
    "input_ids",
    "text_lengths",
    "spectrogram",
    "frame_lengths",
    "segments",
    "segment_starts",
    "posterior_noise",
    "duration_noise",
)

_DISCRIMINATOR_PHASE = TrainingPhaseSpec(
    name=DISCRIMINATOR,
    kind=PhaseKind.DISCRIMINATOR,
    component_paths=("discriminator",),
    optimizer_names=("discriminator",),
    forward_component="discriminator",
    required_inputs=INPUTS,
    label_names=(),
    optimizer_step_after_phase=True,
)
_DURATION_PHASE = TrainingPhaseSpec(
    name=DURATION_DISCRIMINATOR,
    kind=PhaseKind.DURATION_DISCRIMINATOR,
    component_paths=("duration_discriminator",),
    optimizer_names=("duration_discriminator",),
    forward_component="duration_discriminator",
    required_inputs=INPUTS,
    label_names=(),
    optimizer_step_after_phase=True,
)
_GENERATOR_PHASE = TrainingPhaseSpec(
    name=GENERATOR,
    kind=PhaseKind.GENERATOR,
    component_paths=("model",),
    optimizer_names=("generator",),
    forward_component="model",
    required_inputs=INPUTS,
    label_names=(),
    frozen_component_paths=("discriminator",),
    optimizer_step_after_phase=True,
)

VITS = ModelTrainingSpec(
    model_type="vits",
    family=FAMILY,
    task=SpeechTask.TEXT_TO_SPEECH,
    support=TrainingSupport.CUSTOM,
    summary="VITS and MMS-TTS: adversarial end-to-end text-to-speech.",
    module_paths=("model",),
    phases=(_DISCRIMINATOR_PHASE, _GENERATOR_PHASE),
    default_phase=GENERATOR,
    architectures=("VitsModel",),
    adapter_factory="voicehub_vits.adapter:create_adapter",
    config_class="voicehub_vits.config:VitsRunConfig",
    experiment_factory="voicehub_vits.experiment:build_experiment",
    smoke_factory="voicehub_vits.smoke:tiny_settings",
    training_default_model_name_or_path="facebook/mms-tts-eng",
)


def with_duration_discriminator(spec: ModelTrainingSpec) -> ModelTrainingSpec:
    """The recipe with VITS2's discriminator of durations as a phase of its own."""
    frozen = ("discriminator", "duration_discriminator")
    generator = replace(_GENERATOR_PHASE, frozen_component_paths=frozen)
    return replace(spec, phases=(_DISCRIMINATOR_PHASE, _DURATION_PHASE, generator))


def generator_warm_start(spec: ModelTrainingSpec) -> ModelTrainingSpec:
    """The recipe without adversaries, for checkpoints whose features are not known.

    What it trains (text encoder, flow, duration predictor) follows in the adapter: it is no full
    VITS fine-tuning, and is never called so.
    """
    inputs = tuple(n for n in INPUTS if n not in ("spectrogram", "segments", "segment_starts"))
    phase = replace(_GENERATOR_PHASE, frozen_component_paths=(), required_inputs=inputs)
    return replace(spec, phases=(phase,))
