"""The training adapter: what the Trainer calls, and the few methods a family overrides."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from voicehub.adapters.activation_checkpointing import enable_checkpointing
from voicehub.adapters.components import resolve_path
from voicehub.adapters.context import TrainingContext
from voicehub.adapters.description import describe_graph, describe_routes
from voicehub.adapters.evaluation import KeptRows, MetricAccumulator
from voicehub.adapters.fallbacks import fallback_objective
from voicehub.adapters.freezing import frozen_modules
from voicehub.adapters.graph import build_graph, load_model, plans_for_routes
from voicehub.adapters.losses import normalise
from voicehub.adapters.model_state import export_tensors, load_tensors, tied_names
from voicehub.adapters.outputs import SpeechTrainingOutput
from voicehub.adapters.phase_plan import PhasePlan
from voicehub.adapters.portable import restore_recipe_state, save_artifact
from voicehub.adapters.routes import NamedParameters
from voicehub.errors import CheckpointMismatchError, RecipeError, UnsupportedTrainingError
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import PhaseKind, TrainingPhaseSpec
from voicehub.specs.support import TrainingSupport


class TrainingAdapter:
    """Executes the recipe of a ``ModelTrainingSpec`` on a model.

    A family overrides what its recipe needs, usually one or two of: ``training_step_loss``,
    ``evaluation_rows``, ``evaluation_metrics``, ``metric_accumulator``,
    ``on_before_optimizer_step``, ``on_optimizer_step``, ``recipe_state_dict``,
    ``load_recipe_state_dict``, ``resume_configuration`` and ``save_pretrained``. All else is for
    the Trainer.

    Class attributes:
        RECIPE_VERSION: Raise it when the recipe changes such that old checkpoints no longer fit.
        supports_custom_recipe: The adapter is specialised for models of support ``custom``.
        supports_quantized_training, supports_compiled_training: Lift those checks.
        isolate_routes: A phase's backward writes no gradient of another route's parameters.
        large_gradient_norm: A norm above this, update after update, is told as a health alert.
        native_export_semantics: What a native export is: ``inference-export`` or
            ``component-weight-warm-start``.
    """

    RECIPE_VERSION: ClassVar[int] = 1
    supports_custom_recipe: ClassVar[bool] = False
    supports_quantized_training: ClassVar[bool] = False
    supports_compiled_training: ClassVar[bool] = False
    isolate_routes: ClassVar[bool] = True
    large_gradient_norm: ClassVar[float] = 100.0
    native_export_semantics: ClassVar[str] = "component-weight-warm-start"

    module: nn.Module
    routes: Mapping[str, NamedParameters]

    def __init__(self, model: Any, spec: ModelTrainingSpec) -> None:
        """Keep the model and its spec; nothing loads before ``setup()``.

        Args:
            model: A model wrapper, possibly lazy, or a plain module.
            spec: Its training spec.
        """
        self.model = model
        self.spec = spec
        self.phases = spec.phases
        self.is_ready = False
        #: Set by ``AutoTrainingAdapter`` where the adapter was declared for this model type.
        self.is_specialised = False
        #: The context of the phase being run; objectives read the step and sample keys from it.
        self.context: TrainingContext | None = None
        #: Moves tensors that the model's own input hook creates; set by the Trainer.
        self.move_inputs: Callable[[Any], Any] | None = None
        #: Tensors under their original names, where a pass has changed those of the model.
        self.portable_state: Callable[[], Mapping[str, Tensor]] | None = None
        self.components: dict[str, Any] = {}
        self._plans: dict[str, PhasePlan] = {}
        self._kept_in_eval: tuple[nn.Module, ...] = ()
        self._frozen_modules: tuple[nn.Module, ...] = ()
        self._prepare_hook: Callable[[Any], Any] | None = None
        self._every_step = all(phase.frequency == 1 for phase in spec.phases)

    # -- set-up ---------------------------------------------------------------------------

    def setup(self) -> None:
        """Check support, load the model for training, resolve components and routes.

        Idempotent. The order is that of the contract: nothing is loaded before the support
        level and the exact checkpoint were accepted.

        Raises:
            UnsupportedTrainingError: the spec, checkpoint or graph cannot be trained.
            RecipeError: a parameter has two owners, or none.
        """
        if self.is_ready:
            return
        self.validate_support()
        load_model(self)
        graph = build_graph(self)
        self.module, self.routes = graph.module, graph.routes
        self.components, self._plans = graph.components, graph.plans
        self._prepare_hook = getattr(self.model, "prepare_training_inputs", None)
        self.refresh_frozen()
        self.is_ready = True
        restore_recipe_state(self)

    def validate_support(self) -> None:
        """Check the support level; needs no weights.

        Raises:
            UnsupportedTrainingError: inference-only, or custom without a specialised adapter.
        """
        support = self.spec.support
        if support is TrainingSupport.INFERENCE_ONLY:
            raise UnsupportedTrainingError(
                f"{self.spec.model_type!r} is inference-only: it has no verified gradient path, "
                "so it cannot be trained."
            )
        specialised = self.supports_custom_recipe or self.is_specialised
        if support is TrainingSupport.CUSTOM and not specialised:
            raise UnsupportedTrainingError(
                f"{self.spec.model_type!r} has support level custom and needs a specialized "
                "training adapter: declare adapter_factory in its spec, or install one with "
                "AutoTrainingAdapter.register()."
            )

    # -- phases ---------------------------------------------------------------------------

    def due_phases(self, step: int) -> tuple[TrainingPhaseSpec, ...]:
        """Return the phases due at a zero-based optimizer step, in the order declared."""
        if self._every_step:
            return self.phases
        return tuple(phase for phase in self.phases if phase.is_scheduled(step))

    def select_phase(self, name: str | TrainingPhaseSpec) -> TrainingPhaseSpec:
        """Return the phase that a batch's ``training_phase`` names.

        Raises:
            RecipeError: no phase has that name.
        """
        return self.spec.get_phase(name.name if isinstance(name, TrainingPhaseSpec) else name)

    def select_evaluation_phase(self, batch: Any = None) -> TrainingPhaseSpec:
        """Return the phase that evaluates a batch: its own, else the recipe's default.

        Without a declared default the first objective or generator phase is taken.
        """
        if isinstance(batch, Mapping) and batch.get("training_phase") is not None:
            return self.select_phase(batch["training_phase"])
        if self.spec.default_phase is not None:
            return self.spec.get_phase()
        for phase in self.phases:
            if phase.kind in (PhaseKind.OBJECTIVE, PhaseKind.GENERATOR):
                return phase
        return self.phases[0]

    def execute_training_phase(self, context: TrainingContext) -> SpeechTrainingOutput:
        """Run forward and loss of a phase within its detach and freeze boundaries.

        Returns:
            The output; its ``loss`` is a scalar with a gradient, the mean over ``num_items``.

        Raises:
            RecipeError: the forward broke the loss contract.
        """
        plan = self._plan_of(context.phase)
        self.context = context
        inputs = self._inputs(plan, context.inputs)
        if plan.frozen or plan.in_eval:
            with plan.boundaries():
                return self._step(plan, inputs, training=True)
        return self._step(plan, inputs, training=True)

    def execute_prediction_phase(self, context: TrainingContext) -> SpeechTrainingOutput:
        """Run a phase without gradients; the loss may be missing where labels are.

        The Trainer calls ``eval_mode()`` once before an evaluation.
        """
        plan = self._plan_of(context.phase)
        self.context = context
        with torch.no_grad():
            return self._step(plan, self._inputs(plan, context.inputs), training=False)

    def forward(self, inputs: Any, phase: TrainingPhaseSpec) -> Any:
        """Return the raw outputs of a phase's forward, for ``compute_loss_func``.

        ``inputs`` are those of the batch without what the loss function keeps.
        """
        plan = self._plan_of(phase)
        with plan.boundaries():
            return plan.forward(self._inputs(plan, inputs))

    def phase_boundaries(self, phase: TrainingPhaseSpec) -> AbstractContextManager[None]:
        """Return the freeze boundary of a phase, to hold around its backward.

        Only recomputed activations (gradient checkpointing) need it there.
        """
        return self._plan_of(phase).boundaries()

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> Any:
        """Override point: compute the objective of a phase.

        Args:
            inputs: The flattened batch, aliased and detached as the phase declares.
            phase: The phase.

        Returns:
            Anything with a loss: a scalar tensor, an object or mapping with ``loss`` (and
            ``num_items``), or a tuple whose first item is the loss. The default calls the
            phase's forward component.
        """
        return self.forward_component(inputs, phase)

    def forward_component(self, inputs: Any, phase: TrainingPhaseSpec) -> Any:
        """Call the forward component of a phase with prepared inputs."""
        return self._plans[phase.name].forward(inputs)

    def _plan_of(self, phase: TrainingPhaseSpec) -> PhasePlan:
        plan = self._plans.get(phase.name)
        if plan is None:
            if not self.is_ready:
                raise RecipeError("Call setup() before a phase is run.")
            self.select_phase(phase)  # Raises with the names there are.
            raise RecipeError(f"Phase {phase.name!r} was not planned at set-up.")
        return plan

    def _inputs(self, plan: PhasePlan, inputs: Any) -> Any:
        if self._prepare_hook is not None:
            inputs = self._prepare_hook(inputs)
            if self.move_inputs is not None:
                inputs = self.move_inputs(inputs)
        return plan.prepare(inputs)

    def _step(self, plan: PhasePlan, inputs: Any, *, training: bool) -> SpeechTrainingOutput:
        phase = plan.phase
        raw = self.training_step_loss(inputs, phase)
        fallback = None
        if phase.fallback_objective is not None and (training or _has_labels(inputs, phase)):
            fallback = fallback_objective(phase, inputs, regression_loss=self.spec.regression_loss)
        return normalise(raw, plan.rule, training=training, fallback=fallback)

    # -- modes ----------------------------------------------------------------------------

    def train_mode(self) -> None:
        """Put the model in training mode, but what is frozen in eval mode."""
        self.module.train()
        for module in (*self._frozen_modules, *self._kept_in_eval):
            module.eval()

    def eval_mode(self) -> None:
        """Put the whole model in eval mode."""
        self.module.eval()

    def refresh_frozen(self) -> None:
        """Look again which modules are frozen; call it after changing ``requires_grad``."""
        routed = {parameter for named in self.routes.values() for _, parameter in named}
        self._frozen_modules = frozen_modules(
            self.module, lambda parameter: parameter.requires_grad and parameter in routed
        )
        if self.module.training:
            self.train_mode()

    def replace_routes(self, routes: Mapping[str, Sequence[tuple[str, nn.Parameter]]]) -> None:
        """Take over new routes after the parameters below the components were exchanged."""
        self.routes = {name: tuple(named) for name, named in routes.items()}
        self._plans = plans_for_routes(
            self._plans, self.routes, self.components, isolate=self.isolate_routes
        )
        self.refresh_frozen()

    def keep_in_eval(self, modules: Sequence[nn.Module]) -> None:
        """Keep modules in eval mode while training, also such as hold no parameter themselves."""
        self._kept_in_eval = tuple(modules)
        self.refresh_frozen()

    def freeze_in_phase(
        self, name: str, parameters: Sequence[nn.Parameter], modules: Sequence[nn.Module]
    ) -> None:
        """Freeze more in a phase than its spec does; replaces what an earlier call froze."""
        plan = self._plans[name]
        declared = plan.frozen[: len(plan.frozen) - plan.added]
        self._plans[name] = dataclasses.replace(
            plan,
            frozen=(*declared, *parameters),
            in_eval=tuple(modules),
            added=len(parameters),
        )

    def frozen_in_phase(self, name: str) -> tuple[nn.Parameter, ...]:
        """Return what takes no gradient in a phase, be it trainable otherwise."""
        return self._plans[name].frozen

    def gradient_checkpointing_enable(self) -> None:
        """Recompute activations in the backward, in every part of the model that offers it.

        Raises:
            UnsupportedTrainingError: no part does.
        """
        enable_checkpointing(self.module, self.spec.model_type)

    # -- evaluation and hooks ---------------------------------------------------------------

    def evaluation_rows(
        self, output: SpeechTrainingOutput, inputs: Any, info: Mapping[str, Any]
    ) -> list[Any]:
        """Override point: small per-sample results of one evaluation batch (texts, not logits).

        Args:
            output: Of the prediction phase.
            inputs: The batch.
            info: The collator's ``batch_info`` (ids, durations), or an empty mapping.
        """
        return []

    def evaluation_metrics(self, rows: Sequence[Any]) -> dict[str, float]:
        """Override point: metrics over the rows of a whole evaluation set."""
        return {}

    def metric_accumulator(self, split: str) -> MetricAccumulator:
        """Override point: what takes the rows of a split batch by batch, and gives its metrics.

        The default keeps all rows for ``evaluation_metrics``. Override it where the rows of a large
        set would not fit, or where the metrics depend on the split (a list of trials).

        Args:
            split: The name of the evaluation set; ``eval`` for a single one.
        """
        return KeptRows(self.evaluation_metrics)

    def optimizer_groups(
        self, name: str, named_parameters: NamedParameters, args: Any
    ) -> list[dict[str, Any]] | None:
        """Override point: parameter groups of a route with rates of their own.

        Args:
            name: The route.
            named_parameters: Everything the route owns; the groups must hold each exactly once.
            args: The ``TrainingArguments``.

        Returns:
            Groups with ``params``, ``lr``, ``weight_decay`` and ``name``; None takes the default
            (one rate, weight decay on matrices alone).
        """
        return None

    def on_before_optimizer_step(self, names: Sequence[str], step: int) -> None:
        """Override point: called once gradients are ready, before the named routes step."""

    def on_optimizer_step(self, names: Sequence[str], step: int) -> None:
        """Override point: called after the named routes stepped (EMA and the like)."""

    # -- state ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Return the model's tensors, flat, contiguous, tied ones once."""
        return export_tensors(self.module)

    def load_state_dict(self, state: Mapping[str, Tensor], strict: bool = True) -> None:
        """Load model tensors, all or nothing.

        Raises:
            CheckpointMismatchError: names, shapes or dtypes differ; nothing was changed.
        """
        load_tensors(self.module, state, strict=strict)

    def recipe_state_dict(self) -> dict[str, Any]:
        """Override point: state the recipe owns beyond the model (EMA shadows and the like)."""
        return {}

    def load_recipe_state_dict(self, state: Mapping[str, Any]) -> None:
        """Override point: restore what ``recipe_state_dict`` returned; the graph exists by then.

        Raises:
            CheckpointMismatchError: there is state, but this recipe keeps none.
        """
        if state:
            raise CheckpointMismatchError(
                f"The checkpoint holds recipe state ({', '.join(sorted(state))}), but "
                f"{type(self).__name__} keeps none; it was written by another recipe."
            )

    def resume_configuration(self) -> dict[str, Any]:
        """Override point (extend ``super()``'s): JSON that an exact resume must find unchanged."""
        configuration: dict[str, Any] = {
            "phases": {phase.name: phase.to_dict() for phase in self.phases},
            "routes": describe_routes(self.routes),
            "modules": describe_graph(self.module),
        }
        if hasattr(self.model, "artifact_config"):
            configuration["model"] = self.model.artifact_config()
        return configuration

    @property
    def identity(self) -> dict[str, Any]:
        """Who this adapter is: qualified class name, recipe version, model type."""
        cls = type(self)
        return {
            "class": f"{cls.__module__}.{cls.__qualname__}",
            "recipe_version": cls.RECIPE_VERSION,
            "model_type": self.spec.model_type,
        }

    def artifact_manifest(self) -> dict[str, Any]:
        """Return what ``training_recipe.json`` holds, as JSON values."""
        return {
            **self.identity,
            "family": self.spec.family,
            "task": self.spec.task.value,
            "support": self.spec.support.value,
            "recipe_kind": self.spec.recipe_kind.value,
            "phases": [phase.to_dict() for phase in self.phases],
            "routes": describe_routes(self.routes),
            "tied_tensors": tied_names(self.module),
            "native_export": self.native_export_semantics,
        }

    def save_pretrained(self, directory: str | Path, *, native_export: bool) -> None:
        """Write the portable artifact, with a native export under ``native_export/`` if asked."""
        save_artifact(self, Path(directory), native_export=native_export)

    def data_collator(self) -> Callable[[Sequence[Any]], Any] | None:
        """Return the structural collator with the spec's field schemas."""
        from voicehub.data.collate import DataCollatorForTTSTraining

        return DataCollatorForTTSTraining(field_schemas=self.spec.field_schemas)

    def resolve(self, path: str) -> Any:
        """Return the object at a dotted path of the model."""
        return resolve_path(self.model, path)


def _has_labels(inputs: Any, phase: TrainingPhaseSpec) -> bool:
    names: Iterable[str] = phase.label_names
    return isinstance(inputs, Mapping) and any(inputs.get(name) is not None for name in names)
