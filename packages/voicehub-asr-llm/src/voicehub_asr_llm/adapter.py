"""The training adapter: the loss on the assistant's turn, rates by part, token accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.outputs import SpeechTrainingOutput
from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub_asr_llm.model import AsrLlm
from voicehub_asr_llm.training import rate_groups


def create_adapter(model: Any, spec: ModelTrainingSpec) -> AsrLlmAdapter:
    """Return the adapter of a wrapper of this family."""
    return AsrLlmAdapter(model, spec)


class AsrLlmAdapter(TrainingAdapter):
    """Trains what the configuration leaves free.

    The loss is the mean of the cross-entropy over all labels of the global batch; what a projector
    adds of its own counts once for each label of its utterance.
    """

    model: AsrLlm

    def __init__(self, model: Any, spec: ModelTrainingSpec) -> None:
        super().__init__(model, spec)
        self._batch_norms: tuple[nn.Module, ...] = ()

    def setup(self) -> None:
        """Set up as the base does, and look up batch normalisation, which keeps its statistics."""
        if self.is_ready:
            return
        super().setup()
        encoder = self.module.encoder
        self._batch_norms = tuple(
            module
            for module in encoder.modules()  # type: ignore[operator, union-attr]
            if isinstance(module, nn.modules.batchnorm._BatchNorm)
        )

    def train_mode(self) -> None:
        """Training mode, but frozen parts and the encoder's batch normalisation in eval mode."""
        super().train_mode()
        for module in self._batch_norms:
            module.eval()

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> SpeechTrainingOutput:
        """Return the mean loss of a batch; in evaluation also the most likely tokens."""
        network: Any = self.module
        assert self.context is not None
        training = self.context.is_training
        ids = self.context.metadata.get("ids")
        found, projected = network.ask(inputs, ids, wants_best=not training)
        items = found.count
        loss = found.total / items
        losses: dict[str, Tensor] = {}
        if projected.costs is not None:
            extra = (projected.costs * inputs["label_counts"]).sum() / items
            losses = {"tokens": loss.detach(), "projector": extra.detach()}
            loss = loss + extra.to(loss.dtype)
        output = SpeechTrainingOutput(loss=loss, losses=losses, num_items=items)
        if found.best is not None:
            labels = inputs["labels"]
            predictions = torch.full_like(labels, IGNORED)
            predictions[labels != IGNORED] = found.best
            output.predictions = predictions
        return output

    def optimizer_groups(
        self, name: str, named_parameters: Any, args: Any
    ) -> list[dict[str, Any]] | None:
        """Each part at its own rate."""
        return rate_groups(self.module, self.model.config, named_parameters, args)  # type: ignore[arg-type]

    # -- evaluation ----------------------------------------------------------------------------

    def evaluation_rows(
        self, output: SpeechTrainingOutput, inputs: Any, info: Mapping[str, Any]
    ) -> list[tuple[int, int]]:
        """Right and asked tokens of a batch."""
        labels: Tensor = inputs["labels"]
        asked = labels != IGNORED
        right = (output.predictions == labels) & asked
        return [(int(right.sum()), int(asked.sum()))]

    def evaluation_metrics(self, rows: Sequence[Any]) -> dict[str, float]:
        """Share of tokens that were the most likely ones, given those before."""
        asked = sum(count for _, count in rows)
        return {"token_accuracy": sum(hits for hits, _ in rows) / asked} if asked else {}
