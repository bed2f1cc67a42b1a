"""Objectives for forwards that return predictions but no loss.

They run only where a phase names one. Shapes must agree exactly: nothing is truncated,
nothing broadcast. Each returns ``(mean loss, number of items)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from voicehub.errors import RecipeError
from voicehub.specs.phase import TrainingPhaseSpec

IGNORE_INDEX = -100
MASK_NAMES = (
    "loss_mask",
    "label_mask",
    "labels_mask",
    "target_mask",
    "mel_mask",
    "spectrogram_mask",
    "audio_mask",
    "velocity_mask",
    "latent_mask",
)


def causal_cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Next-token cross-entropy: position t of ``logits`` predicts position t + 1 of ``labels``.

    Args:
        logits: Float, (batch, length, classes).
        labels: Integer, (batch, length); -100 is ignored.
    """
    _same_leading_shape(logits, labels)
    if labels.ndim != 2 or labels.shape[1] < 2:
        raise RecipeError(
            f"causal_cross_entropy needs labels (batch, length >= 2), got {tuple(labels.shape)}."
        )
    return _cross_entropy(logits[:, :-1], labels[:, 1:])


def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy at equal positions.

    Args:
        logits: Float, (..., classes).
        labels: Integer, (...); -100 is ignored.
    """
    _same_leading_shape(logits, labels)
    return _cross_entropy(logits, labels)


def classification(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy over one class for each utterance, (batch, classes), or for each frame.

    Args:
        logits: Float, (batch, classes) or (batch, frames, classes).
        labels: Integer, (batch,) or (batch, frames); -100 is ignored.
    """
    if logits.ndim not in (2, 3):
        raise RecipeError(
            "classification needs logits (batch, classes) or (batch, frames, classes), got "
            f"{tuple(logits.shape)}."
        )
    return cross_entropy(logits, labels)


def masked_regression(
    predictions: Tensor, targets: Tensor, mask: Tensor | None, *, distance: str = "mse"
) -> tuple[Tensor, Tensor]:
    """Mean distance over the elements that the mask keeps.

    Args:
        predictions, targets: Float, of one shape.
        mask: Bool or 0/1, of that shape, or of its leading dimensions; None keeps all.
        distance: ``mse``, ``l1`` or ``smooth_l1``.
    """
    if predictions.shape != targets.shape:
        raise RecipeError(
            f"regression_loss needs equal shapes, got predictions {tuple(predictions.shape)} and "
            f"targets {tuple(targets.shape)}; implicit broadcasting would hide a mistake."
        )
    functions = {"mse": F.mse_loss, "l1": F.l1_loss, "smooth_l1": F.smooth_l1_loss}
    error = functions[distance](predictions.float(), targets.float(), reduction="none")
    if mask is None:
        return error.mean(), error.new_tensor(error.numel())
    kept = _expanded(mask, error)
    count = _supervised(kept.sum())
    return (error * kept).sum() / count, count


def fallback_objective(
    phase: TrainingPhaseSpec, inputs: Mapping[str, Any], *, regression_loss: str
) -> Callable[[Any], tuple[Tensor, Tensor]] | None:
    """Return the objective a phase names, bound to a batch; None where it names none."""
    name = phase.fallback_objective
    if name is None:
        return None

    def objective(raw: Any) -> tuple[Tensor, Tensor]:
        predictions = _predictions(raw, phase)
        key, labels = _labels(inputs, phase)
        if name == "regression_loss":
            return masked_regression(
                predictions, labels, _mask(inputs, key, phase), distance=regression_loss
            )
        return _CLASSIFIERS[name](predictions, labels)

    return objective


_CLASSIFIERS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "causal_cross_entropy": causal_cross_entropy,
    "cross_entropy": cross_entropy,
    "classification": classification,
}


def _same_leading_shape(logits: Tensor, labels: Tensor) -> None:
    if labels.is_floating_point():
        raise RecipeError(f"Labels of a cross-entropy are class indices, got {labels.dtype}.")
    if logits.shape[:-1] != labels.shape:
        raise RecipeError(
            f"Labels {tuple(labels.shape)} must have the leading shape of the logits "
            f"{tuple(logits.shape)}; a fallback will not silently truncate either."
        )


def _cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    flat = labels.reshape(-1).long()
    count = _supervised((flat != IGNORE_INDEX).sum())
    total = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).float(),
        flat,
        ignore_index=IGNORE_INDEX,
        reduction="sum",
    )
    return total / count, count


def _supervised(count: Tensor) -> Tensor:
    # One device synchronisation: the price of an error here instead of a NaN later.
    if not bool(count):
        raise RecipeError("No item of the batch is supervised: every label is ignored or masked.")
    return count


def _expanded(mask: Tensor, error: Tensor) -> Tensor:
    if mask.shape != error.shape[: mask.ndim]:
        raise RecipeError(
            f"The mask {tuple(mask.shape)} must have the shape of the targets "
            f"{tuple(error.shape)} or of their leading dimensions."
        )
    trailing = (1,) * (error.ndim - mask.ndim)
    return mask.to(error.dtype).reshape(*mask.shape, *trailing).expand_as(error)


def _predictions(raw: Any, phase: TrainingPhaseSpec) -> Tensor:
    if isinstance(raw, Tensor):
        return raw
    for key in phase.prediction_keys:
        value = raw.get(key) if isinstance(raw, Mapping) else getattr(raw, key, None)
        if isinstance(value, Tensor):
            return value
    raise RecipeError(
        f"Phase {phase.name!r}: fallback {phase.fallback_objective} found none of the predictions "
        f"{', '.join(phase.prediction_keys)} in the model's output."
    )


def _labels(inputs: Mapping[str, Any], phase: TrainingPhaseSpec) -> tuple[str, Tensor]:
    for key in phase.label_names:
        value = inputs.get(key)
        if isinstance(value, Tensor):
            return key, value
    raise RecipeError(
        f"Phase {phase.name!r}: fallback {phase.fallback_objective} found none of the labels "
        f"{', '.join(phase.label_names)} in the batch; it holds {', '.join(inputs)}."
    )


def _mask(inputs: Mapping[str, Any], label: str, phase: TrainingPhaseSpec) -> Tensor | None:
    names = dict.fromkeys((*MASK_NAMES, f"{label}_mask"))
    present = [name for name in names if inputs.get(name) is not None]
    if len(present) > 1:
        raise RecipeError(
            f"Phase {phase.name!r}: the batch holds several loss masks ({', '.join(present)}); "
            "keep the one that the loss is to honour."
        )
    return inputs[present[0]] if present else None
