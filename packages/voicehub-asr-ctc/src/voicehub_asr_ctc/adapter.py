"""The training adapter: CTC objective, freezing over time, metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.outputs import SpeechTrainingOutput
from voicehub.errors import DataError
from voicehub.kernels import load_loss
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub_asr_ctc.config import ObjectiveConfig
from voicehub_asr_ctc.data.collate import OBJECTIVE_KEYS
from voicehub_asr_ctc.decoding import greedy
from voicehub_asr_ctc.decoding.forced import minimum_frames
from voicehub_asr_ctc.forward import run_apart, run_together
from voicehub_asr_ctc.log_mel_model import LogMelCTC
from voicehub_asr_ctc.losses import CTCLoss
from voicehub_asr_ctc.metrics import EvaluationRow, error_rates
from voicehub_asr_ctc.pretrained_model import TransformersCTC

#: The share of blank frames in training is looked at every so many updates.
BLANK_SHARE_EVERY = 50


def create_adapter(model: Any, spec: ModelTrainingSpec) -> CTCAdapter:
    """Return the adapter of a wrapper of this family."""
    return CTCAdapter(model, spec)


class CTCAdapter(TrainingAdapter):
    """Trains both kinds of models.

    Attributes:
        blank_share: share of blank frames on the best path of a recent training batch.
    """

    native_export_semantics = "inference-export"

    def __init__(self, model: Any, spec: ModelTrainingSpec) -> None:
        super().__init__(model, spec)
        self.blank_share: float | None = None
        self._ctc_loss: Callable[..., CTCLoss] | None = None
        self._weight = 0.0
        self._regularisers: dict[str, float] = {}
        self._thaw_step = 0
        self._held: list[nn.Parameter] | None = None
        self._scheduled: tuple[nn.Parameter, ...] = ()
        self._batch_norms: tuple[nn.Module, ...] = ()

    def setup(self) -> None:
        """Set up as the base does, and look up what is frozen for a while."""
        if self.is_ready:
            return
        super().setup()
        self._ctc_loss = load_loss("asr_ctc.ctc").functions["ctc_loss"]
        objective = getattr(self.model, "config", None)
        if isinstance(objective, ObjectiveConfig):
            names = ("label_smoothing", "consistency_weight")
            self._regularisers = {name: getattr(objective, name) for name in names}
        if isinstance(self.model, LogMelCTC):
            self._weight = self.model.config.intermediate_weight
        if isinstance(self.model, TransformersCTC) and self.model.config is not None:
            config = self.model.config
            if config.freeze_batch_norm:
                self._batch_norms = tuple(
                    module
                    for module in self.module.modules()
                    if isinstance(module, nn.modules.batchnorm._BatchNorm)
                )
            if config.freeze_encoder_steps:
                self._thaw_step = config.freeze_encoder_steps
                named = self.model.encoder_named_parameters()
                self._scheduled = tuple(parameter for _, parameter in named)

    def train_mode(self) -> None:
        """Training mode, but frozen parts and kept batch statistics in eval mode."""
        super().train_mode()
        for module in self._batch_norms:
            module.eval()

    def resume_configuration(self) -> dict[str, Any]:
        """The base's, and the live path of the loss: paths round differently."""
        loss = load_loss("asr_ctc.ctc")
        device = next(self.module.parameters()).device.type
        kernels = {loss.name: loss.selected_kernel(device).path}
        return {**super().resume_configuration(), "kernels": kernels}

    # -- the objective -----------------------------------------------------------------------

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> SpeechTrainingOutput:
        """Return the mean over utterances of the CTC loss a label."""
        assert self.context is not None and self._ctc_loss is not None
        training = self.context.is_training
        if training:
            self._hold_encoder(self.context.step or 0)
        logits, half_way = self._logits(inputs, phase)
        frames = list(inputs["frame_lengths"])
        _require_frames(logits, inputs)
        if "labels" not in inputs:
            return SpeechTrainingOutput(logits=logits)
        targets = (frames, inputs["labels"], list(inputs["label_lengths"]))
        ids = self.context.metadata.get("ids") if training else None
        options: dict[str, Any] = {
            "blank": self.model.tokenizer.blank_id,
            "exclude_unalignable": not training,
            "ids": ids,
            "views": inputs.get("views", 1),
        }
        final = self._ctc_loss(logits, *targets, **options, **self._added(inputs, training))
        if training and (self.context.step or 0) % BLANK_SHARE_EVERY == 0:
            self.blank_share = _blank_share(logits[: len(frames)], frames, options["blank"])
        loss, losses = final.loss, dict(final.terms)
        if losses:
            losses["loss"] = loss
        if half_way is not None and self._weight:
            middle = self._ctc_loss(half_way, *targets, **options).loss
            loss = (1.0 - self._weight) * final.loss + self._weight * middle
            losses |= {"loss": loss, "final": final.loss, "half_way": middle}
        return SpeechTrainingOutput(
            loss=loss, logits=logits, losses=losses, num_items=final.num_items
        )

    def _added(self, inputs: Any, training: bool) -> dict[str, float]:
        """Weights of what training adds to the loss; consistency where a batch has two views."""
        if not training:
            return {}
        if "views" in inputs:
            return self._regularisers
        return {**self._regularisers, "consistency_weight": 0.0}

    def _logits(self, inputs: Any, phase: TrainingPhaseSpec) -> tuple[Tensor, Tensor | None]:
        taken = {key: value for key, value in inputs.items() if key not in OBJECTIVE_KEYS}

        def network(part: dict[str, Any]) -> Any:
            return self.forward_component(part, phase)

        if not self.model.runs_apart:
            self._mask(inputs)
            return run_together(network, taken)
        if "time_mask" not in inputs:
            return run_apart(network, taken, inputs["input_lengths"]), None

        def before(positions: list[int], length: int) -> None:
            self._mask(inputs, positions, length)

        return run_apart(network, taken, inputs["input_lengths"], before), None

    def _mask(
        self, inputs: Any, positions: Sequence[int] | None = None, length: int | None = None
    ) -> None:
        """Hand masks over hidden states to the model's hook, for the next forward."""
        masking = getattr(self.model, "masking", None)
        if masking is None or "time_mask" not in inputs:
            return
        time, feature = inputs["time_mask"], inputs["feature_mask"]
        if positions is not None:
            hidden = self.model.front_end.hidden_frames(length)
            time, feature = time[positions, :hidden], feature[positions]
        masking.set_masks(time, feature)

    def _hold_encoder(self, step: int) -> None:
        """Keep the encoder as it is before ``freeze_encoder_steps``, and let it go from then on."""
        hold = step < self._thaw_step
        if hold == (self._held is not None):
            return
        if hold:
            self._held = [p for p in self._scheduled if p.requires_grad]
        for parameter in self._held or ():
            parameter.requires_grad_(not hold)
        if not hold:
            self._held = None
        self.refresh_frozen()

    # -- evaluation --------------------------------------------------------------------------

    def evaluation_rows(
        self, output: SpeechTrainingOutput, inputs: Any, info: Mapping[str, Any]
    ) -> list[EvaluationRow]:
        """Return the greedy text of each utterance."""
        tokenizer = self.model.tokenizer
        frames = list(inputs["frame_lengths"])
        alignments = greedy(output.logits, frames, tokenizer.blank_id)
        best = output.logits.argmax(-1).cpu()
        labels = inputs["labels"].tolist()
        rows = []
        for position, alignment in enumerate(alignments):
            own = labels[position][: inputs["label_lengths"][position]]
            blanks = (best[position, : frames[position]] == tokenizer.blank_id).sum()
            rows.append(
                EvaluationRow(
                    info["ids"][position],
                    info["texts"][position],
                    tokenizer.decode(alignment.ids),
                    frames[position],
                    int(blanks),
                    minimum_frames(own) > frames[position],
                )
            )
        return rows

    def evaluation_metrics(self, rows: Sequence[Any]) -> dict[str, float]:
        """Return word and character error rates and signs of collapse."""
        return error_rates(rows, self.model.metric_normalizer)


def _require_frames(logits: Tensor, inputs: Mapping[str, Any]) -> None:
    """The model's own length formula and what it produced must agree."""
    expected = max(inputs["produced_frames"])
    if expected != logits.shape[1]:
        longest = inputs["produced_frames"].index(expected)
        raise DataError(
            f"the model gave {logits.shape[1]} frames for an input of "
            f"{inputs['input_lengths'][longest]}, its length formula says {expected}. "
            "This is a bug, or a model whose configuration was changed by hand."
        )


def _blank_share(logits: Tensor, frames: Sequence[int], blank: int) -> float:
    with torch.no_grad():
        best = logits.argmax(-1)
        positions = torch.arange(best.shape[1], device=best.device)
        valid = positions < torch.tensor(frames, device=best.device)[:, None]
        return float(((best == blank) & valid).sum()) / max(1, sum(frames))
