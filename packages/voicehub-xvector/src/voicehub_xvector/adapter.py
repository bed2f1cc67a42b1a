"""The training adapter: margin losses with their warm-up, verification of evaluation splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.outputs import SpeechTrainingOutput
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub_xvector.data.collate import OBJECTIVE_KEYS
from voicehub_xvector.losses import margin_scale
from voicehub_xvector.verification import EmbeddingRow, pair_metrics


def create_adapter(model: Any, spec: ModelTrainingSpec) -> XVectorAdapter:
    """Return the adapter of a wrapper of this family."""
    return XVectorAdapter(model, spec)


class XVectorAdapter(TrainingAdapter):
    """Trains all model types."""

    native_export_semantics = "inference-export"

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> SpeechTrainingOutput:
        """Return the mean over utterances of the classification loss.

        Evaluation losses are without a margin, over speakers that are known; there is none where
        all speakers are new.
        """
        assert self.context is not None
        taken = {key: value for key, value in inputs.items() if key not in OBJECTIVE_KEYS}
        embeddings: Tensor = self.forward_component(taken, phase)
        labels = inputs.get("labels")
        if labels is None:
            return SpeechTrainingOutput(predictions=embeddings)
        loss: Any = self.module.loss
        if not self.context.is_training:
            known = labels >= 0
            if not bool(known.any()):
                return SpeechTrainingOutput(predictions=embeddings)
            total, count = loss(embeddings[known], labels[known], margin_scale=0.0)
            return SpeechTrainingOutput(
                loss=total / count, predictions=embeddings, num_items=float(count)
            )
        config = self.model.config.loss
        share = margin_scale(config, step=self.context.step or 0, epoch=self.context.epoch or 0.0)
        total, count = loss(embeddings, labels, margin_scale=share)
        mean = total / count
        margin = torch.tensor(config.margin * share, device=mean.device)
        return SpeechTrainingOutput(
            loss=mean,
            predictions=embeddings,
            losses={"margin": margin},
            num_items=float(count),
        )

    # -- evaluation ------------------------------------------------------------------------------

    def evaluation_rows(
        self, output: SpeechTrainingOutput, inputs: Any, info: Mapping[str, Any]
    ) -> list[EmbeddingRow]:
        """Return the embedding of each utterance whose speaker is named."""
        speakers = info.get("speakers")
        if speakers is None:
            return []
        embeddings = output.predictions.detach().float().cpu().numpy()
        return [
            EmbeddingRow(name, speaker, row)
            for name, speaker, row in zip(info["ids"], speakers, embeddings, strict=True)
        ]

    def evaluation_metrics(self, rows: Sequence[Any]) -> dict[str, float]:
        """Return error rates over all pairs of the split."""
        speakers = {row.speaker for row in rows}
        if len(speakers) < 2 or len(speakers) == len(rows):
            return {}
        return pair_metrics(rows, set(self.model.classes))
