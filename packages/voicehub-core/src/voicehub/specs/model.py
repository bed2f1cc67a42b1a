"""The training spec of one model type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from voicehub.data.schema import TTSFieldSchema, coerce_field_schemas
from voicehub.errors import RecipeError
from voicehub.specs.phase import (
    DEFAULT_LABEL_NAMES,
    DEFAULT_LOSS_KEYS,
    DEFAULT_PREDICTION_KEYS,
    TrainingPhaseSpec,
)
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask
from voicehub.specs.validation import name_tuple, require_name, require_reference
from voicehub.suggest import did_you_mean

MAX_SCHEDULE_PERIOD = 100_000
REGRESSION_LOSSES = ("mse", "l1", "smooth_l1")
_NAME_TUPLES = (
    "module_paths",
    "component_paths",
    "label_names",
    "prediction_keys",
    "loss_keys",
    "architectures",
    "aliases",
)
_REFERENCES = ("adapter_factory", "config_class", "experiment_factory", "smoke_factory")


class TrainingRecipeKind(str, Enum):
    """The shape of a recipe."""

    SINGLE_PHASE = "single-phase"
    MULTI_PHASE = "multi-phase"
    ADVERSARIAL = "adversarial"


@dataclass(frozen=True)
class ModelTrainingSpec:
    """How a model type trains; holds no tensor and imports no tensor library.

    Attributes:
        model_type: Unique name, for example ``"vits"``.
        family: Name of the family, for example ``"asr-ctc"``.
        task: What the model does.
        support: How truthfully it trains.
        summary: One line for people.
        aliases: Other names that ``get_training_spec`` resolves to this spec.
        module_paths: Where the primary module may sit on the wrapper, in order of preference.
        component_paths: Components beyond the primary module that train or are saved.
        label_names, prediction_keys, loss_keys, loss_weights, fallback_objective: Defaults of the
            single phase that a spec without ``phases`` has.
        regression_loss: Distance of the fallback ``regression_loss``: mse, l1 or smooth_l1.
        phases: The recipe; empty means one phase named ``default``.
        default_phase: Phase that evaluation uses.
        recipe_kind: Derived from the phases when left at its default.
        field_schemas: Padding rules by dotted batch path; mappings are accepted.
        architectures: transformers class names, to infer the type of a plain checkpoint.
        adapter_factory, config_class, experiment_factory: Lazy ``"module:attribute"`` references
            to the adapter factory, the RunConfig subclass and the ``voicehub train`` factory.
        smoke_factory: Lazy reference to ``factory(values, directory)``: given a preset as
            composed, it makes what a smoke run needs (data, tiny checkpoints) in the directory and
            returns the overrides ``key=value`` that use it with tiny shapes.
        training_default_model_name_or_path: Checkpoint to start from when none is named.
    """

    model_type: str
    family: str
    task: SpeechTask = SpeechTask.TEXT_TO_SPEECH
    support: TrainingSupport = TrainingSupport.PREPROCESSED
    summary: str = ""
    aliases: tuple[str, ...] = ()
    module_paths: tuple[str, ...] = ("model", "model.model")
    component_paths: tuple[str, ...] = ()
    label_names: tuple[str, ...] = DEFAULT_LABEL_NAMES
    prediction_keys: tuple[str, ...] = DEFAULT_PREDICTION_KEYS
    loss_keys: tuple[str, ...] = DEFAULT_LOSS_KEYS
    loss_weights: Mapping[str, float] | tuple[tuple[str, float], ...] = ()
    fallback_objective: str | None = None
    regression_loss: str = "mse"
    phases: tuple[TrainingPhaseSpec, ...] = ()
    default_phase: str | None = None
    recipe_kind: TrainingRecipeKind = TrainingRecipeKind.SINGLE_PHASE
    field_schemas: Mapping[str, TTSFieldSchema] = field(default_factory=dict, hash=False)
    architectures: tuple[str, ...] = ()
    adapter_factory: str | None = None
    config_class: str | None = None
    experiment_factory: str | None = None
    smoke_factory: str | None = None
    training_default_model_name_or_path: str | None = None

    def __post_init__(self) -> None:
        require_name(self.model_type, where="model_type")
        where = f"Spec {self.model_type!r}"
        self._set("family", _plain(self.family))
        require_name(self.family, where=f"{where}: family")
        self._set("support", TrainingSupport.coerce(self.support))
        self._set("task", _member(SpeechTask, self.task, f"{where}: task"))
        for name in _NAME_TUPLES:
            # The empty path is the model itself, for plain modules.
            values = name_tuple(
                getattr(self, name), where=f"{where}: {name}", allow_empty=name == "module_paths"
            )
            self._set(name, values)
        for name in _REFERENCES:
            require_reference(getattr(self, name), where=f"{where}: {name}")
        if self.regression_loss not in REGRESSION_LOSSES:
            raise RecipeError(
                f"{where}: unknown regression_loss {self.regression_loss!r}; expected one of "
                f"{', '.join(REGRESSION_LOSSES)}."
                f"{did_you_mean(self.regression_loss, REGRESSION_LOSSES)}"
            )
        self._set("field_schemas", coerce_field_schemas(self.field_schemas))
        self._set("phases", tuple(self.phases) or (self._single_phase(),))
        self._check_phases(where)
        _check_schedule(self.phases, where)
        self._set("recipe_kind", self._resolved_kind(where))

    @property
    def family_name(self) -> str:
        """The family as a plain string."""
        return self.family

    @property
    def is_turnkey(self) -> bool:
        """Whether the spec alone is enough to train."""
        return self.support.is_turnkey

    @property
    def supports_training(self) -> bool:
        """Same as ``is_turnkey``."""
        return self.support.is_turnkey

    @property
    def has_training_recipe(self) -> bool:
        """Whether some recipe trains it, be it a specialised one."""
        return self.support.is_trainable

    @property
    def requires_custom_adapter(self) -> bool:
        """Whether a specialised adapter must be present."""
        return self.support is TrainingSupport.CUSTOM

    @property
    def phase_map(self) -> dict[str, TrainingPhaseSpec]:
        """Phases by name, in the order declared."""
        return {phase.name: phase for phase in self.phases}

    def get_phase(self, name: str | None = None) -> TrainingPhaseSpec:
        """Return the named phase, or the default one.

        Raises:
            RecipeError: no phase has that name.
        """
        phases = self.phase_map
        if name is None:
            return phases[self.default_phase] if self.default_phase else self.phases[0]
        if name not in phases:
            raise RecipeError(
                f"Unknown training phase {name!r} of {self.model_type!r}; it has "
                f"{', '.join(phases)}.{did_you_mean(name, phases)}"
            )
        return phases[name]

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _single_phase(self) -> TrainingPhaseSpec:
        return TrainingPhaseSpec(
            name="default",
            label_names=self.label_names,
            prediction_keys=self.prediction_keys,
            loss_keys=self.loss_keys,
            loss_weights=self.loss_weights,
            fallback_objective=self.fallback_objective,
        )

    def _check_phases(self, where: str) -> None:
        for phase in self.phases:
            if not isinstance(phase, TrainingPhaseSpec):
                raise TypeError(f"{where}: phases must hold TrainingPhaseSpec, got {phase!r}.")
        names = [phase.name for phase in self.phases]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise RecipeError(f"{where}: phase names must be unique, found twice: {repeated}.")
        if self.default_phase is not None and self.default_phase not in names:
            raise RecipeError(
                f"{where}: default_phase {self.default_phase!r} is none of its phases "
                f"{', '.join(names)}.{did_you_mean(self.default_phase, names)}"
            )

    def _resolved_kind(self, where: str) -> TrainingRecipeKind:
        kind: TrainingRecipeKind = _member(
            TrainingRecipeKind, self.recipe_kind, f"{where}: recipe_kind"
        )
        if kind is not TrainingRecipeKind.SINGLE_PHASE:
            return kind
        if any(phase.kind.is_adversarial for phase in self.phases):
            return TrainingRecipeKind.ADVERSARIAL
        return TrainingRecipeKind.MULTI_PHASE if len(self.phases) > 1 else kind


def _check_schedule(phases: tuple[TrainingPhaseSpec, ...], where: str) -> None:
    """Check every step of the schedule's period: something is due, and GAN order is whole."""
    period = math.lcm(*(phase.frequency for phase in phases))
    if period > MAX_SCHEDULE_PERIOD:
        raise RecipeError(
            f"{where}: the phases repeat only every {period} steps, more than "
            f"{MAX_SCHEDULE_PERIOD}. Choose frequencies with a smaller common multiple."
        )
    if period == 1 and len(phases) == 1:
        return
    for step in range(period):
        due = [phase for phase in phases if phase.is_scheduled(step)]
        if not due:
            raise RecipeError(
                f"{where}: no phase is due at step {step} of each {period}. "
                "The phases must cover every recipe step."
            )
        stepping = [phase.name for phase in due if phase.optimizer_step_after_phase]
        if stepping and len(stepping) < len(due):
            others = [phase.name for phase in due if not phase.optimizer_step_after_phase]
            raise RecipeError(
                f"{where}: at step {step} {', '.join(stepping)} step after their phase but "
                f"{', '.join(others)} do not. Sequential order must route every scheduled phase: "
                "set optimizer_step_after_phase on all of them or on none."
            )


def _member(kind: type[Any], value: Any, where: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        known = [member.value for member in kind]
        raise RecipeError(
            f"{where}: unknown value {value!r}; expected one of {', '.join(known)}."
            f"{did_you_mean(str(value), known)}"
        ) from None


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
