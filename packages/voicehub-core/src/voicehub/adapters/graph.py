"""Set-up of an adapter: load the model, resolve what the recipe declares, plan its phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import nn

from voicehub.adapters.components import (
    ComponentError,
    build_root,
    declared_components,
    phase_paths,
    primary_module,
)
from voicehub.adapters.graph_checks import check_graph
from voicehub.adapters.losses import LossRule
from voicehub.adapters.outputs import SpeechTrainingOutput, TTSTrainingOutput
from voicehub.adapters.phase_plan import PhasePlan, frozen_in_phase, unread_labels
from voicehub.adapters.routes import NamedParameters, build_routes
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub.specs.task import SpeechTask

if TYPE_CHECKING:
    from voicehub.adapters.base import TrainingAdapter


@dataclass(frozen=True)
class RecipeGraph:
    """A model with its recipe applied.

    Attributes:
        module: Holds every component.
        components: What each path leads to.
        routes: Named parameters by optimizer name.
        plans: Phase plans by name.
    """

    module: nn.Module
    components: dict[str, Any]
    routes: dict[str, NamedParameters]
    plans: dict[str, PhasePlan]


def load_model(adapter: TrainingAdapter) -> None:
    """Check the exact checkpoint of a wrapper, then load it for training."""
    model = adapter.model
    # Passed only where it is true, so that a wrapper need not know the option.
    options = {"allow_quantized": True} if adapter.supports_quantized_training else {}
    if hasattr(model, "validate_training_support"):
        model.validate_training_support(**options)
    if hasattr(model, "load_for_training"):
        model.load_for_training(**options)


def build_graph(adapter: TrainingAdapter) -> RecipeGraph:
    """Resolve components, check the loaded graph, give parameters their routes, plan phases.

    Raises:
        ComponentError: a path does not lead to what the recipe needs.
        UnsupportedGraphError: the loaded graph cannot be trained.
        RecipeError: a parameter has two owners, or none.
    """
    spec = adapter.spec
    components = declared_components(adapter.model, spec)
    primary = _add_primary(adapter.model, spec, components)
    modules = {path: part for path, part in components.items() if isinstance(part, nn.Module)}
    root = build_root(modules)
    check_graph(
        root,
        allow_quantised=adapter.supports_quantized_training,
        allow_compiled=adapter.supports_compiled_training,
    )
    owned = [(phase, phase_paths(phase, spec, primary)) for phase in spec.phases]
    routes = build_routes(root, owned, modules)
    plans: dict[str, PhasePlan] = {}
    for phase in spec.phases:
        call = _forward_of(phase, primary, components, spec)
        plans[phase.name] = PhasePlan(
            phase=phase,
            call=call,
            rule=_loss_rule(phase, spec),
            frozen=frozen_in_phase(phase, routes, modules, isolate=adapter.isolate_routes),
            dropped_labels=unread_labels(phase, call),
            as_given=not (phase.required_inputs or phase.detach_inputs or phase.input_aliases),
        )
    return RecipeGraph(root, components, routes, plans)


def plans_for_routes(
    plans: Mapping[str, PhasePlan],
    routes: Mapping[str, NamedParameters],
    components: Mapping[str, Any],
    *,
    isolate: bool,
) -> dict[str, PhasePlan]:
    """Return phase plans for other routes: what each phase must leave alone changes with them."""
    modules = {path: part for path, part in components.items() if isinstance(part, nn.Module)}
    return {
        name: replace(
            plan, frozen=frozen_in_phase(plan.phase, routes, modules, isolate=isolate), added=0
        )
        for name, plan in plans.items()
    }


def _add_primary(model: Any, spec: ModelTrainingSpec, components: dict[str, Any]) -> str | None:
    """Add the primary module to the components; None where the recipe needs none."""
    found = primary_module(model, spec)
    if found is not None:
        path, module = found
        components.setdefault(path, module)
        return path
    if all(phase.component_paths and phase.forward_component for phase in spec.phases):
        return None
    paths = ", ".join(repr(path) for path in spec.module_paths)
    raise ComponentError(
        f"{spec.model_type}: none of the module paths {paths} of {type(model).__name__} is a "
        "module with a trainable parameter, and module discovery is disabled. Set module_paths "
        "in the spec, or unfreeze what is to train."
    )


def _forward_of(
    phase: TrainingPhaseSpec,
    primary: str | None,
    components: Mapping[str, Any],
    spec: ModelTrainingSpec,
) -> Callable[..., Any]:
    path = phase.forward_component if phase.forward_component is not None else primary
    component = components[str(path)]
    # A module is called itself, so that its hooks run.
    if phase.forward_method == "forward" and callable(component):
        call: Callable[..., Any] = component
        return call
    method = getattr(component, phase.forward_method, None)
    if not callable(method):
        raise ComponentError(
            f"{spec.model_type}: phase {phase.name!r} calls {phase.forward_method!r} of {path!r}, "
            f"which {type(component).__name__} does not have."
        )
    bound: Callable[..., Any] = method
    return bound


def _loss_rule(phase: TrainingPhaseSpec, spec: ModelTrainingSpec) -> LossRule:
    is_tts = spec.task is SpeechTask.TEXT_TO_SPEECH
    metadata = {
        "model_type": spec.model_type,
        "training_family": spec.family,
        "training_support": spec.support.value,
        "training_phase": phase.name,
        "optimizer_names": phase.optimizer_names,
    }
    return LossRule.of(phase, TTSTrainingOutput if is_tts else SpeechTrainingOutput, metadata)
