"""The training adapter of codec language models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.outputs import SpeechTrainingOutput, TTSTrainingOutput
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub_codec_lm.model import CodecLM
from voicehub_codec_lm.objective import accuracy, best_codes, cost


def create_adapter(model: Any, spec: ModelTrainingSpec) -> CodecLMAdapter:
    """Return the adapter of a wrapper of this family."""
    return CodecLMAdapter(model, spec)


class CodecLMAdapter(TrainingAdapter):
    """Trains every layout.

    The loss is the weighted mean of the cross-entropy over all positions that are asked for: with
    codebook weights w_k and n_k positions of codebook k in the whole global batch,
    ``sum_k w_k L_k / sum_k w_k n_k``, where ``L_k`` sums over its positions. Every utterance asks
    each codebook for equally many positions, so that this is the weighted mean of the codebooks'
    own means.
    """

    native_export_semantics = "inference-export"
    model: CodecLM

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> SpeechTrainingOutput:
        """Return the loss of a batch; in evaluation also the most likely codes."""
        network, fused = self.model.network, self.model.config.loss.fused
        asked = network.ask(self.module, inputs)
        total: Tensor | None = None
        items = torch.zeros((), dtype=torch.float64)
        losses: dict[str, Tensor] = {}
        for heads in asked.heads:
            found = cost(heads, fused=fused)
            total = found.total if total is None else total + found.total
            items = items.to(found.counts.device)
            items = items + (found.counts * heads.head_weights.double()).sum()
            means = found.sums / found.counts.clamp(min=1e-12)
            losses.update(zip(heads.names, means, strict=True))
        assert total is not None
        output = TTSTrainingOutput(
            loss=total / items.clamp(min=1e-12).to(total.dtype),
            losses=losses if len(losses) > 1 else {},
            num_items=items,
        )
        if self.context is not None and not self.context.is_training:
            rows = best_codes(asked.heads[0])
            output.predictions = rows.reshape(*asked.shape, -1)
            output.metadata = {"right_codes": list(accuracy(asked))}
        return output

    # -- evaluation ----------------------------------------------------------------------------

    def evaluation_rows(
        self, output: SpeechTrainingOutput, inputs: Any, info: Mapping[str, Any]
    ) -> list[tuple[str, int, int]]:
        """Right and asked codes of a batch, by head."""
        return list(output.metadata.get("right_codes", ()))

    def evaluation_metrics(self, rows: Sequence[Any]) -> dict[str, float]:
        """Share of codes that were the most likely ones, by head and over all."""
        right: dict[str, int] = {}
        asked: dict[str, int] = {}
        for name, hits, count in rows:
            right[name] = right.get(name, 0) + hits
            asked[name] = asked.get(name, 0) + count
        metrics = {
            f"accuracy_{name}": right[name] / asked[name] for name in sorted(asked) if asked[name]
        }
        total = sum(asked.values())
        return {"accuracy": sum(right.values()) / total, **metrics} if total else {}
