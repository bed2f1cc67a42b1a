"""The training adapter: margin losses with their warm-up, verification of evaluation splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.evaluation import EvaluationContext, EvaluationTask, KeptRows
from voicehub.adapters.outputs import SpeechTrainingOutput
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub_xvector.data.collate import OBJECTIVE_KEYS
from voicehub_xvector.losses import margin_scale
from voicehub_xvector.metrics.verification import Verification
from voicehub_xvector.verification import EmbeddingRow, pair_metrics, verify_rows


def create_adapter(model: Any, spec: ModelTrainingSpec) -> XVectorAdapter:
    """Return the adapter of a wrapper of this family."""
    return XVectorAdapter(model, spec)


class XVectorAdapter(TrainingAdapter):
    """Trains all model types.

    Attributes:
        verified: error rates of the last evaluation of each split.
    """

    native_export_semantics = "inference-export"

    def __init__(self, model: Any, spec: ModelTrainingSpec) -> None:
        super().__init__(model, spec)
        self.verified: dict[str, Verification] = {}

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

    def metric_accumulator(self, split: str) -> KeptRows:
        """Keep the rows of a split, and its error rates for ``DetCurves``."""

        def metrics(rows: Sequence[Any]) -> dict[str, float]:
            measured = self.evaluation_metrics(rows)
            if measured:
                self.verified[split] = verify_rows(rows)
            return measured

        self.verified.pop(split, None)
        return KeptRows(metrics)

    def evaluation_metrics(self, rows: Sequence[Any]) -> dict[str, float]:
        """Return error rates over all pairs of the split."""
        speakers = {row.speaker for row in rows}
        if len(speakers) < 2 or len(speakers) == len(rows):
            return {}
        return pair_metrics(rows, set(self.model.classes))


class DetCurves(EvaluationTask):
    """Draws the detection error trade-off of every split that was just evaluated."""

    name = "det-curves"

    def run(self, context: EvaluationContext) -> Mapping[str, float]:
        """Hand a picture for each split to the reporters."""
        if context.wants_media and isinstance(context.adapter, XVectorAdapter):
            from voicehub_xvector.metrics.det import det_image

            verified = context.adapter.verified
            context.log_media({f"det-{s}": det_image(v.points) for s, v in verified.items()})
        return {}
