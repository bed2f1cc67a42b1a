"""The training adapter: both sides of the game, and one forward of the generator a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.outputs import SpeechTrainingOutput, TTSTrainingOutput
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub_vits import objective
from voicehub_vits.config import LossWeights
from voicehub_vits.features import Spectrogram
from voicehub_vits.losses.recipe import recipe_losses
from voicehub_vits.model import VitsTTS
from voicehub_vits.network.generator import Rendered, render
from voicehub_vits.network.layout import train_channels_last
from voicehub_vits.specs import (
    DISCRIMINATOR,
    DURATION_DISCRIMINATOR,
    GENERATOR,
    generator_warm_start,
    with_duration_discriminator,
)


def create_adapter(model: Any, spec: ModelTrainingSpec) -> VitsAdapter:
    """Return the adapter of a wrapper of this family, with the recipe its settings ask for."""
    config = model.config
    if config.generator_only:
        return VitsAdapter(model, generator_warm_start(spec))
    if config.duration_discriminator is not None:
        return VitsAdapter(model, with_duration_discriminator(spec))
    return VitsAdapter(model, spec)


@dataclass(frozen=True)
class _Kept:
    """A forward of the generator, graph included, and what it is a forward of."""

    inputs: Any
    version: tuple[int, ...]
    rendered: Rendered


class VitsAdapter(TrainingAdapter):
    """Trains VITS.

    The discriminator phase runs the generator with its graph, and judges what it rendered as a
    constant. The generator phase of the same micro-batch goes on from that graph: the generator
    has not moved in between, so that a second forward with the same draws would give the same.
    With several micro-batches a step only the last graph is kept, and the others run again.
    """

    supports_custom_recipe = True
    native_export_semantics = "inference-export"
    # The discriminator phase must leave the generator's graph whole. Its loss sees rendered audio
    # as a constant, and the generator phase freezes the discriminators, so nothing leaks.
    isolate_routes = False
    # The mel term weighs 45.
    large_gradient_norm = 5000.0

    def __init__(self, model: VitsTTS, spec: ModelTrainingSpec) -> None:
        super().__init__(model, spec)
        self._kept: _Kept | None = None
        #: Of the last prediction phase, for pictures of its alignments.
        self.last_rendered: Rendered | None = None

    def setup(self) -> None:
        """Set up as the base does; the features follow the settings."""
        if self.is_ready:
            return
        super().setup()
        recipe_losses()  # one that is missing shows before a weight moves
        self.spectrogram = Spectrogram(self.model.acoustic)
        train_channels_last(self.model.model.duration_predictor)

    # -- the objective -----------------------------------------------------------------------

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> SpeechTrainingOutput:
        """Return the mean over utterances of a phase's weighted terms."""
        if phase.name == DISCRIMINATOR:
            return self._discriminator_phase(inputs)
        if phase.name == DURATION_DISCRIMINATOR:
            return self._duration_phase(inputs)
        return self._generator_phase(inputs)

    def _discriminator_phase(self, inputs: Mapping[str, Any]) -> TTSTrainingOutput:
        rendered = self._rendered(inputs, keep=True)
        assert rendered.audio is not None
        judged = objective.judge_apart(self.discriminator, inputs["segments"], rendered.audio)
        terms = {
            "adversarial": judged.loss,
            "real": judged.real.sum(),
            "generated": judged.generated.sum(),
        }
        return _output({"adversarial": self.weights.discriminator}, terms, inputs)

    def _duration_phase(self, inputs: Mapping[str, Any]) -> TTSTrainingOutput:
        rendered = self._rendered(inputs, keep=True)
        judge = self.model.duration_discriminator
        with torch.no_grad():
            predicted = objective.predicted_log_durations(self.model.model, rendered, inputs)
        made = objective.judge_durations(judge, rendered, predicted)
        real = objective.judge_durations(judge, rendered, objective.real_log_durations(rendered))
        loss = objective.masked_square(real, 1.0, rendered.text_mask)
        loss = loss + objective.masked_square(made, 0.0, rendered.text_mask)
        weights = {"adversarial": self.weights.duration_discriminator}
        return _output(weights, {"adversarial": loss}, inputs)

    def _generator_phase(self, inputs: Mapping[str, Any]) -> TTSTrainingOutput:
        rendered = self._rendered(inputs, keep=False)
        self.last_rendered = None if self._is_training else rendered
        model, weights = self.model.model, self.weights
        terms = objective.reconstruction_terms(model, self.spectrogram, rendered, inputs)
        used = {"duration": weights.duration, "kl": weights.kl}
        if rendered.audio is not None:
            terms.update(
                objective.adversarial_terms(self.discriminator, inputs["segments"], rendered.audio)
            )
            used.update(mel=weights.mel, adversarial=weights.adversarial)
            used["feature_matching"] = weights.feature_matching
        if self.model.duration_discriminator is not None:
            predicted = objective.predicted_log_durations(model, rendered, inputs)
            made = objective.judge_durations(self.model.duration_discriminator, rendered, predicted)
            term = objective.masked_square(made, 1.0, rendered.text_mask)
            terms["duration_adversarial"] = term
            used["duration_adversarial"] = weights.duration_adversarial
        output = _output(used, terms, inputs)
        if not self._is_training:
            output.predictions = rendered.token_of_frame
        return output

    @property
    def weights(self) -> LossWeights:
        """Weights of the terms."""
        weights: LossWeights = self.model.config.weights
        return weights

    @property
    def discriminator(self) -> Any:
        """The waveform discriminators."""
        return self.model.discriminator

    @property
    def _is_training(self) -> bool:
        return self.context is None or self.context.is_training

    # -- the generator's forward ---------------------------------------------------------------

    def _rendered(self, inputs: Mapping[str, Any], *, keep: bool) -> Rendered:
        """Render a batch, or take over the forward that an earlier phase of its step has made."""
        kept, self._kept = self._kept, None
        if kept is not None and self._is_training and self._is_current(kept):
            self._kept = kept if keep else None
            return kept.rendered
        frames = None if self.model.config.generator_only else self.model.acoustic.segment_frames
        if not keep:
            return render(self.model.model, inputs, frames)
        # As the generator's own phase would run it: what that freezes is frozen here too.
        with self.phase_boundaries(self.spec.get_phase(GENERATOR)):
            rendered = render(self.model.model, inputs, frames)
        if self._is_training and self.context is not None:
            self._kept = _Kept(self.context.inputs, self._version(), rendered)
        return rendered

    def _is_current(self, kept: _Kept) -> bool:
        """Whether a forward is of this micro-batch and of weights that have not moved since."""
        same = self.context is not None and kept.inputs is self.context.inputs
        return same and kept.version == self._version()

    def _version(self) -> tuple[int, ...]:
        """Changes with every change of a weight, and between the modes."""
        parameters = self.model.model.parameters()
        return (int(self.model.model.training), *(p._version for p in parameters))

    # -- what the result is ---------------------------------------------------------------------

    def artifact_manifest(self) -> dict[str, Any]:
        """The base's, with what this recipe is and is not."""
        config = self.model.config
        acoustic = self.model.acoustic.model_dump(mode="json")
        manifest = super().artifact_manifest()
        manifest["full_vits_fine_tuning"] = not config.generator_only
        if config.generator_only:
            manifest["native_export"] = "component-weight-warm-start"
            manifest["trained_components"] = ["text_encoder", "flow", "duration_predictor"]
            manifest["assumed_acoustic_config"] = acoustic
        else:
            manifest["training_acoustic_config"] = acoustic
        return manifest


def _output(
    weights: Mapping[str, float], terms: Mapping[str, Tensor], inputs: Mapping[str, Any]
) -> TTSTrainingOutput:
    """Weigh the terms; ``losses`` holds them unweighted."""
    total: Tensor | None = None
    for name, weight in weights.items():
        if weight:
            part = terms[name] if weight == 1.0 else weight * terms[name]
            total = part if total is None else total + part
    assert total is not None
    return TTSTrainingOutput(loss=total, losses=dict(terms), num_items=len(inputs["input_ids"]))
