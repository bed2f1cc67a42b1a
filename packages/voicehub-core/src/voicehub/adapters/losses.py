"""Turn whatever a forward returns into one scalar loss and a ``SpeechTrainingOutput``.

A forward may return a scalar tensor, an object or mapping with ``loss``, a tuple whose first
item is the loss, or a ``SpeechTrainingOutput``. ``loss_keys`` of the phase is an allow-list; a
nested ``losses`` (or ``loss_dict``) mapping is searched first. Whether the value is finite is
not asked here: that costs a device synchronisation, and the Trainer asks once for all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from voicehub.adapters.outputs import SpeechTrainingOutput
from voicehub.errors import RecipeError
from voicehub.specs.phase import TrainingPhaseSpec

_HALF = (torch.float16, torch.bfloat16)
_NESTED = ("losses", "loss_dict")
_FIELDS = ("logits", "predictions", "audio_values", "hidden_states", "attentions")


class LossTypeError(RecipeError, TypeError):
    """What was given as a loss or an item count is not a scalar tensor."""


@dataclass(slots=True, frozen=True)
class LossRule:
    """What ``normalise`` needs to know of a phase, computed once."""

    phase: TrainingPhaseSpec
    output_class: type[SpeechTrainingOutput]
    metadata: Mapping[str, Any]
    weights: Mapping[str, float]
    extra_prediction_keys: tuple[str, ...]

    @classmethod
    def of(
        cls,
        phase: TrainingPhaseSpec,
        output_class: type[SpeechTrainingOutput],
        metadata: Mapping[str, Any],
    ) -> LossRule:
        """Build the rule of a phase."""
        extra = tuple(key for key in phase.prediction_keys if key not in _FIELDS)
        return cls(phase, output_class, metadata, phase.weights, extra)


Fallback = Callable[[Any], tuple[Tensor, Tensor]]


def normalise(
    raw: Any, rule: LossRule, *, training: bool, fallback: Fallback | None = None
) -> SpeechTrainingOutput:
    """Return the output of one phase.

    Args:
        raw: What the forward returned.
        rule: Loss keys, weights and identity of the phase.
        training: A loss with a gradient is required; otherwise it may be missing.
        fallback: The objective the phase names, called with ``raw`` when it holds no declared
            loss; returns ``(mean loss, number of items)``.

    Raises:
        RecipeError: no loss, not a scalar, or no gradient (a ValueError).
        LossTypeError: the loss is no tensor (a TypeError).
    """
    output = _read(raw, rule, training)
    if output.loss is None and fallback is not None:
        output.loss, output.num_items = fallback(raw)
    loss = output.loss
    if loss is None:
        if training:
            raise RecipeError(_no_loss(raw, rule.phase))
    elif not isinstance(loss, Tensor):
        raise LossTypeError(
            f"Phase {rule.phase.name!r}: the loss must be a torch.Tensor, "
            f"got {type(loss).__name__}."
        )
    elif loss.ndim:
        raise RecipeError(
            f"Phase {rule.phase.name!r}: the loss must be a scalar, got shape {tuple(loss.shape)}. "
            "Reduce it to its mean, and return the number of items it is a mean of as 'num_items'."
        )
    elif training and not loss.requires_grad:
        raise RecipeError(
            f"Phase {rule.phase.name!r}: the loss does not depend on any trainable parameter "
            "(requires_grad is False). Look for a detach() or torch.no_grad() in the forward, or "
            "for a phase whose components are all frozen."
        )
    if loss is not None and loss.dtype in _HALF:
        output.loss = loss.float()  # sums over a window and its items would lose digits
    if output.num_items is not None:
        _check_items(output.num_items, rule.phase.name)
    output.training_phase = rule.phase.name
    output.optimizer_names = rule.phase.optimizer_names
    output.metadata = {**rule.metadata, **output.metadata} if output.metadata else rule.metadata
    return output


def _read(raw: Any, rule: LossRule, training: bool) -> SpeechTrainingOutput:
    if isinstance(raw, SpeechTrainingOutput):
        loss, losses = _select(raw, rule)
        raw.loss, raw.losses = loss, losses
        return raw
    output = rule.output_class()
    if isinstance(raw, Tensor):
        _assign_first(output, raw, training)
    elif isinstance(raw, (tuple, list)) and not hasattr(raw, "_fields"):
        if raw:
            _assign_first(output, raw[0], training)
        if len(raw) > 1 and output.logits is None:
            output.logits = raw[1]
    else:
        output.loss, output.losses = _select(raw, rule)
        look = _lookup(raw)
        output.num_items = look("num_items")
        for name in _FIELDS:
            value = look(name)
            if value is not None:
                setattr(output, name, value)
        if output.predictions is None:
            for key in rule.extra_prediction_keys:
                output.predictions = look(key)
                if output.predictions is not None:
                    break
    return output


def _assign_first(output: SpeechTrainingOutput, value: Any, training: bool) -> None:
    """A bare first value is the loss; in prediction a non-scalar one can only be logits."""
    if not training and isinstance(value, Tensor) and value.ndim:
        output.logits = value
    else:
        output.loss = value


def _select(raw: Any, rule: LossRule) -> tuple[Tensor | None, Mapping[str, Tensor]]:
    """Return the total loss, and its detached components where there are named ones."""
    look = _lookup(raw)
    nested = look(_NESTED[0])
    if nested is None:
        nested = look(_NESTED[1])
    if not nested and not rule.weights:
        loss = look("loss") if "loss" in rule.phase.loss_keys else None
        if loss is not None:
            return loss, {}
    nested = nested or {}
    found: dict[str, Any] = {}
    for key in rule.phase.loss_keys:
        value = nested[key] if key in nested else look(key)
        if value is not None:
            found[key] = value
    total = _total(found, rule)
    components = {**nested, **{key: found[key] for key in found if key != "loss"}}
    return total, {
        key: value.detach()
        for key, value in components.items()
        if isinstance(value, Tensor) and not value.ndim
    }


def _lookup(raw: Any) -> Callable[[str], Any]:
    if isinstance(raw, Mapping):
        return raw.get
    return lambda key: getattr(raw, key, None)


def _total(found: Mapping[str, Any], rule: LossRule) -> Any:
    if not found:
        return None
    if not rule.weights and "loss" in found:
        return found["loss"]
    missing = [key for key in rule.weights if key not in found]
    if missing:
        raise RecipeError(
            f"Phase {rule.phase.name!r}: the forward returned no {', '.join(missing)}, which "
            f"loss_weights declares; it returned {', '.join(found)}."
        )
    total: Any = None
    for key, value in found.items():
        if not isinstance(value, Tensor):
            raise LossTypeError(
                f"Phase {rule.phase.name!r}: loss {key!r} must be a torch.Tensor, "
                f"got {type(value).__name__}."
            )
        weight = rule.weights.get(key, 1.0)
        value = value.float() if value.dtype in _HALF else value
        term = value if weight == 1.0 else value * weight
        total = term if total is None else total + term
    return total


def _check_items(num_items: Any, phase: str) -> None:
    if isinstance(num_items, Tensor):
        if num_items.numel() != 1:
            raise LossTypeError(
                f"Phase {phase!r}: num_items must be one number, got shape "
                f"{tuple(num_items.shape)}; sum it over the batch."
            )
    elif isinstance(num_items, bool) or not isinstance(num_items, (int, float)):
        raise LossTypeError(
            f"Phase {phase!r}: num_items must be a number or a scalar tensor, "
            f"got {type(num_items).__name__}."
        )


def _no_loss(raw: Any, phase: TrainingPhaseSpec) -> str:
    if isinstance(raw, Mapping):
        held = f"a mapping with the keys {', '.join(map(str, raw)) or 'none'}"
    elif isinstance(raw, (tuple, list)):
        held = f"a {type(raw).__name__} of {len(raw)} items, whose first must be the loss"
    else:
        held = f"{type(raw).__name__}"
    return (
        f"Phase {phase.name!r}: the forward returned no loss and the spec names no generic "
        f"fallback objective. Looked for {', '.join(phase.loss_keys)}; it returned {held}. Pass "
        "the labels the model needs, declare the key in loss_keys, or give compute_loss_func."
    )
