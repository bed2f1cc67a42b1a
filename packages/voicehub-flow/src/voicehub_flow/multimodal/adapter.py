"""The training adapter of the multimodal transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.outputs import SpeechTrainingOutput
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub_flow.losses import masked_velocity_error
from voicehub_flow.multimodal.model import MultimodalFlow
from voicehub_flow.multimodal.network import MultimodalTransformer
from voicehub_flow.objective import interpolate, loss_by_time, time_rows


def create_adapter(model: Any, spec: ModelTrainingSpec) -> MultimodalAdapter:
    """Return the adapter of a wrapper of this recipe."""
    return MultimodalAdapter(model, spec)


class MultimodalAdapter(TrainingAdapter):
    """Velocity matching over latents that are drawn anew at every step.

    ``x1 = mean + std * epsilon``, normalised channel by channel; the loss is the mean squared error
    of the velocity over all valid frames and channels of the global batch.
    """

    model: MultimodalFlow
    module: MultimodalTransformer

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> SpeechTrainingOutput:
        """Return the loss of a batch; in evaluation also the velocities."""
        network, sigma = self.module, self.model.config.min_sigma
        latents = network.normalize(inputs["mean"] + inputs["std"] * inputs["epsilon"])
        noise, time = inputs["noise"], inputs["time"]
        mask: Tensor | None = inputs.get("mask")
        moving = interpolate(noise, latents, time, sigma)
        velocity = network(moving, time, network.conditions(inputs), mask)
        valid = torch.ones_like(velocity[..., 0], dtype=torch.bool) if mask is None else mask
        sums = masked_velocity_error(velocity, noise, latents, valid, min_sigma=sigma)
        counts = inputs["frames"] * velocity.shape[-1]
        items = counts.sum()
        output = SpeechTrainingOutput(loss=sums.sum() / items, num_items=items)
        if self.context is not None and not self.context.is_training:
            output.predictions = velocity
            output.metadata = {"by_time": time_rows(time, sums, counts)}
        return output

    # -- evaluation ----------------------------------------------------------------------------

    def evaluation_rows(
        self, output: SpeechTrainingOutput, inputs: Any, info: Mapping[str, Any]
    ) -> list[tuple[float, float, float]]:
        """Time, sum of squares and its count, of every clip."""
        return list(output.metadata.get("by_time", ()))

    def evaluation_metrics(self, rows: Sequence[Any]) -> dict[str, float]:
        """The loss by time: a model may know the sound and not the noise, or the other way."""
        return loss_by_time(rows)
