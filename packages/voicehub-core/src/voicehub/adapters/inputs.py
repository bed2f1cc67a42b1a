"""From a collated batch to the arguments of a forward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voicehub.errors import RecipeError
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub.suggest import did_you_mean

PHASE_KEY = "training_phase"
NESTED_KEY = "model_inputs"


def flatten_model_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Lift ``model_inputs`` to the top level and drop ``training_phase``.

    Raises:
        TypeError: ``model_inputs`` is no mapping.
        RecipeError: a key is both at the top level and inside ``model_inputs``.
    """
    flat = {key: value for key, value in inputs.items() if key not in (NESTED_KEY, PHASE_KEY)}
    nested = inputs.get(NESTED_KEY)
    if nested is None:
        return flat
    if not isinstance(nested, Mapping):
        raise TypeError(f"model_inputs must be a mapping, got {type(nested).__name__}.")
    duplicates = sorted(flat.keys() & nested.keys())
    if duplicates:
        raise RecipeError(
            f"model_inputs duplicates top-level training keys: {', '.join(duplicates)}. "
            "Keep each in one place."
        )
    return {**flat, **nested}


def check_required(inputs: Mapping[str, Any], phase: TrainingPhaseSpec) -> None:
    """Raise a RecipeError that names the required keys a batch lacks."""
    missing = [key for key in phase.required_inputs if inputs.get(key) is None]
    if missing:
        raise RecipeError(
            f"Phase {phase.name!r} requires {', '.join(missing)} in the batch; it holds "
            f"{', '.join(inputs)}.{did_you_mean(missing[0], inputs)} The data set, its collator "
            "or the model's prepare_training_inputs() must provide it."
        )


def apply_aliases(inputs: Mapping[str, Any], phase: TrainingPhaseSpec) -> dict[str, Any]:
    """Rename batch keys to the forward's arguments; an absent key is left out.

    Raises:
        RecipeError: the batch also holds the argument under its own name.
    """
    aliases = phase.aliases
    renamed = {key: value for key, value in inputs.items() if key not in aliases}
    for source, target in aliases.items():
        if source not in inputs:
            continue
        if target in renamed:
            raise RecipeError(
                f"Phase {phase.name!r}: input alias {source!r} -> {target!r} would overwrite "
                f"{target!r}, which the batch holds too."
            )
        renamed[target] = inputs[source]
    return renamed


def detach_paths(inputs: Mapping[str, Any], phase: TrainingPhaseSpec) -> dict[str, Any]:
    """Return the inputs with the tensors at ``detach_inputs`` detached; the batch is untouched.

    Raises:
        RecipeError: a path leads nowhere; a misspelt boundary must not let gradients through.
    """
    result = dict(inputs)
    for path in phase.detach_inputs:
        parts = path.split(".")
        if parts[0] == NESTED_KEY and len(parts) > 1:
            parts = parts[1:]
        _detach_at(result, parts, path, phase)
    return result


def _detach_at(
    holder: dict[str, Any], parts: list[str], path: str, phase: TrainingPhaseSpec
) -> None:
    key = parts[0]
    if key not in holder:
        raise RecipeError(
            f"Phase {phase.name!r}: detach_inputs path {path!r} is not in the batch; at "
            f"{key!r} it holds {', '.join(holder) or 'nothing'}.{did_you_mean(key, holder)}"
        )
    value = holder[key]
    if len(parts) == 1:
        holder[key] = _detached(value)
        return
    if not isinstance(value, Mapping):
        raise RecipeError(
            f"Phase {phase.name!r}: detach_inputs path {path!r} goes through {key!r}, which is a "
            f"{type(value).__name__}, not a mapping."
        )
    holder[key] = dict(value)
    _detach_at(holder[key], parts[1:], path, phase)


def _detached(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach()
    if isinstance(value, Mapping):
        return {key: _detached(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_detached(item) for item in value)
    return value
