"""The training adapter of the text-to-speech recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.outputs import SpeechTrainingOutput, TTSTrainingOutput
from voicehub.kernels import load_loss
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub_flow.objective import interpolate, loss_by_time, time_rows
from voicehub_flow.tts.model import F5TTS

LOSS = "flow.masked_velocity_mse"


def create_adapter(model: Any, spec: ModelTrainingSpec) -> F5TTSAdapter:
    """Return the adapter of a wrapper of this recipe."""
    return F5TTSAdapter(model, spec)


class F5TTSAdapter(TrainingAdapter):
    """Trains the velocity on the frames that are to be filled in.

    The loss is the squared error over those frames and all bins of the whole global batch, over
    their number: an update does not depend on how the batch was split.
    """

    native_export_semantics = "inference-export"
    model: F5TTS

    def setup(self) -> None:
        """Set up as the base does; a missing loss shows before a weight moves."""
        if self.is_ready:
            return
        self._error = load_loss(LOSS).functions["masked_velocity_error"]
        super().setup()

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> SpeechTrainingOutput:
        """Return the loss of a batch; in evaluation also the velocities."""
        training = self.context is None or self.context.is_training
        lengths, span = inputs["frame_lengths"], inputs["span_mask"]
        places = torch.arange(span.shape[1], device=span.device)
        valid = places < lengths[:, None]
        asked = span & valid
        hidden = ~valid[..., None]
        mel, noise = (inputs[name].masked_fill(hidden, 0.0) for name in ("mel", "noise"))
        sigma = self.model.config.objective.min_sigma
        drops = {name: inputs[name] & training for name in ("drop_audio", "drop_text")}
        velocity = self.module(
            interpolate(noise, mel, inputs["time"], sigma),
            mel.masked_fill(span[..., None], 0.0),
            inputs["time"],
            inputs["input_ids"],
            inputs["text_lengths"],
            lengths,
            speakers=inputs["speaker_ids"],
            **drops,
        )
        errors: Tensor = self._error(velocity, noise, mel, asked, min_sigma=sigma)
        counts = asked.sum(1) * mel.shape[2]
        items = counts.sum()
        output = TTSTrainingOutput(
            loss=errors.sum() / items.clamp(min=1).to(errors.dtype), num_items=items
        )
        if not training:
            output.predictions = velocity
            output.metadata = {"by_time": time_rows(inputs["time"], errors, counts)}
        return output

    # -- evaluation ----------------------------------------------------------------------------

    def evaluation_rows(
        self, output: SpeechTrainingOutput, inputs: Any, info: Mapping[str, Any]
    ) -> list[tuple[float, float, float]]:
        """Time, squared error and count of every utterance."""
        return list(output.metadata.get("by_time", ()))

    def evaluation_metrics(self, rows: Sequence[Any]) -> dict[str, float]:
        """Loss by bins of t: ``loss_t0.04`` is that from 0.04 to the next bin."""
        return loss_by_time(rows)
