"""One phase of a training recipe: what runs, what it optimises, when."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from voicehub.errors import RecipeError
from voicehub.specs.validation import name_tuple, pair_tuple, require_name
from voicehub.suggest import did_you_mean

FALLBACK_OBJECTIVES = (
    "causal_cross_entropy",
    "cross_entropy",
    "classification",
    "regression_loss",
)
DEFAULT_LABEL_NAMES = ("labels", "targets", "target")
DEFAULT_PREDICTION_KEYS = ("logits", "predictions", "audio_values", "waveform")
DEFAULT_LOSS_KEYS = ("loss", "total_loss")

_TUPLE_FIELDS = (
    "component_paths",
    "label_names",
    "prediction_keys",
    "loss_keys",
    "required_inputs",
    "detach_inputs",
    "frozen_component_paths",
)


class PhaseKind(str, Enum):
    """The part a phase plays in its recipe."""

    OBJECTIVE = "objective"
    GENERATOR = "generator"
    DISCRIMINATOR = "discriminator"
    DURATION_DISCRIMINATOR = "duration-discriminator"
    AUXILIARY = "auxiliary"

    @property
    def is_adversarial(self) -> bool:
        """Whether the phase is one side of a GAN and so needs an optimizer of its own."""
        return self in (
            PhaseKind.GENERATOR,
            PhaseKind.DISCRIMINATOR,
            PhaseKind.DURATION_DISCRIMINATOR,
        )


@dataclass(frozen=True)
class TrainingPhaseSpec:
    """Declaration of one phase; invalid values raise on construction.

    Attributes:
        name: Unique within the recipe; a batch may select the phase by it.
        component_paths: Dotted paths of the components whose parameters the phase optimises;
            empty means the components of the model spec, or its primary module.
        optimizer_names: Routes the phase steps: none (the route ``default``), one that owns all
            components, or one for each component path, in order.
        forward_component: Path of what the forward calls; None is the primary module.
        forward_method: Method of that component.
        label_names: Batch keys that hold targets.
        prediction_keys: Output keys that hold predictions, in order of preference.
        loss_keys: Allow-list of output keys that may enter the loss.
        loss_weights: ``{loss key: weight}`` (or pairs); a declared key without one weighs 1.
        input_aliases: ``{batch key: forward argument}`` (or pairs).
        required_inputs: Batch keys without which the forward is refused.
        frequency: The phase is due every ``frequency`` optimizer steps ...
        offset: ... at the steps with ``step % frequency == offset``.
        fallback_objective: Named objective used when the forward returns no declared loss.
        kind: Part in the recipe.
        detach_inputs: Dotted batch paths detached from their graph before the forward.
        frozen_component_paths: Components that get no gradient from this phase.
        optimizer_step_after_phase: Step before the next phase's forward (GAN order).
    """

    name: str
    component_paths: tuple[str, ...] = ()
    optimizer_names: tuple[str, ...] = ()
    forward_component: str | None = None
    forward_method: str = "forward"
    label_names: tuple[str, ...] = DEFAULT_LABEL_NAMES
    prediction_keys: tuple[str, ...] = DEFAULT_PREDICTION_KEYS
    loss_keys: tuple[str, ...] = DEFAULT_LOSS_KEYS
    loss_weights: Mapping[str, float] | tuple[tuple[str, float], ...] = ()
    input_aliases: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
    required_inputs: tuple[str, ...] = ()
    frequency: int = 1
    offset: int = 0
    fallback_objective: str | None = None
    kind: PhaseKind = PhaseKind.OBJECTIVE
    detach_inputs: tuple[str, ...] = ()
    frozen_component_paths: tuple[str, ...] = ()
    optimizer_step_after_phase: bool = False

    def __post_init__(self) -> None:
        require_name(self.name, where="Phase name")
        where = f"Phase {self.name!r}"
        for field in _TUPLE_FIELDS:
            values = name_tuple(getattr(self, field), where=f"{where}: {field}")
            object.__setattr__(self, field, values)
        require_name(self.forward_method, where=f"{where}: forward_method")
        if self.forward_component is not None and not isinstance(self.forward_component, str):
            raise TypeError(f"{where}: forward_component must be a dotted path or None.")
        self._check_kind(where)
        self._check_optimizer_names(where)
        self._check_schedule(where)
        self._check_losses(where)
        self._check_aliases(where)

    @property
    def weights(self) -> dict[str, float]:
        """The declared loss weights by loss key."""
        return dict(self.loss_weights)

    @property
    def aliases(self) -> dict[str, str]:
        """The forward argument for each aliased batch key."""
        return dict(self.input_aliases)

    def is_scheduled(self, step: int) -> bool:
        """Whether the phase is due at the zero-based optimizer step ``step``."""
        return step % self.frequency == self.offset

    def to_dict(self) -> dict[str, Any]:
        """Return every field as strict JSON values (for manifests and the resume signature)."""
        record: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Enum):
                value = value.value
            elif field.name in ("loss_weights", "input_aliases"):
                value = dict(value)
            elif isinstance(value, tuple):
                value = list(value)
            record[field.name] = value
        return record

    def _check_kind(self, where: str) -> None:
        try:
            object.__setattr__(self, "kind", PhaseKind(self.kind))
        except ValueError:
            kinds = [kind.value for kind in PhaseKind]
            raise RecipeError(
                f"{where}: unknown kind {self.kind!r}; expected one of {', '.join(kinds)}."
                f"{did_you_mean(str(self.kind), kinds)}"
            ) from None

    def _check_optimizer_names(self, where: str) -> None:
        # Not name_tuple: two components may share one optimizer by repeating its name.
        if isinstance(self.optimizer_names, str):
            raise TypeError(
                f"{where}: optimizer_names must be a tuple, write ({self.optimizer_names!r},)."
            )
        names = tuple(self.optimizer_names)
        object.__setattr__(self, "optimizer_names", names)
        for name in names:
            require_name(name, where=f"{where}: optimizer name")
        if len(names) > 1 and len(names) != len(self.component_paths):
            raise RecipeError(
                f"{where}: {len(names)} optimizer names for {len(self.component_paths)} component "
                "paths. Give one name that owns all components, or one name for each path."
            )
        if self.kind.is_adversarial and not names:
            raise RecipeError(
                f"{where}: kind {self.kind.value!r} needs optimizer_names, since the other side "
                "of the game must not step with it."
            )
        if self.optimizer_step_after_phase and not names:
            raise RecipeError(f"{where}: optimizer_step_after_phase=True needs optimizer_names.")

    def _check_schedule(self, where: str) -> None:
        for field in ("frequency", "offset"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{where}: {field} must be an integer, got {value!r}.")
        if self.frequency <= 0:
            raise RecipeError(f"{where}: frequency must be at least 1, got {self.frequency}.")
        if not 0 <= self.offset < self.frequency:
            raise RecipeError(
                f"{where}: offset must lie in [0, {self.frequency}), got {self.offset}."
            )

    def _check_losses(self, where: str) -> None:
        if not self.loss_keys:
            raise RecipeError(f"{where}: loss_keys must name at least one output key.")
        weights = pair_tuple(self.loss_weights, where=f"{where}: loss_weights")
        object.__setattr__(self, "loss_weights", weights)
        for key, weight in weights:
            if isinstance(weight, bool) or not isinstance(weight, (int, float)):
                raise TypeError(f"{where}: weight of {key!r} must be a number, got {weight!r}.")
            if not math.isfinite(weight):
                raise RecipeError(f"{where}: weight of {key!r} must be finite, got {weight}.")
            if key not in self.loss_keys:
                raise RecipeError(
                    f"{where}: {key!r} has a weight but is not in loss_keys {self.loss_keys}."
                    f"{did_you_mean(key, self.loss_keys)}"
                )
        if len(dict(weights)) != len(weights):
            raise RecipeError(f"{where}: loss_weights gives one key two weights.")
        if self.fallback_objective not in (None, *FALLBACK_OBJECTIVES):
            raise RecipeError(
                f"{where}: unknown fallback_objective {self.fallback_objective!r}; expected None "
                f"or one of {', '.join(FALLBACK_OBJECTIVES)}."
                f"{did_you_mean(str(self.fallback_objective), FALLBACK_OBJECTIVES)}"
            )

    def _check_aliases(self, where: str) -> None:
        aliases = pair_tuple(self.input_aliases, where=f"{where}: input_aliases")
        object.__setattr__(self, "input_aliases", aliases)
        targets: dict[str, str] = {}
        for source, target in aliases:
            require_name(target, where=f"{where}: input_aliases target")
            if target in targets:
                raise RecipeError(
                    f"{where}: input_aliases maps both {targets[target]!r} and {source!r} "
                    f"to {target!r}."
                )
            targets[target] = source
