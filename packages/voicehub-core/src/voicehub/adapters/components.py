"""Resolve the dotted component paths of a spec on a model, and the root that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from voicehub.errors import UnsupportedTrainingError
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec


class ComponentError(UnsupportedTrainingError, TypeError):
    """A declared path does not lead to what the recipe needs."""


def resolve_path(model: Any, path: str) -> Any:
    """Return the object at a dotted path; the empty path is the model itself.

    Raises:
        AttributeError, KeyError, IndexError: the path leads nowhere.
    """
    if hasattr(model, "resolve"):
        return model.resolve(path)
    return walk(model, path)


def walk(value: Any, path: str) -> Any:
    """Follow attributes, mapping keys and list positions along a dotted path."""
    for part in filter(None, path.split(".")):
        if isinstance(value, (Mapping, nn.ModuleDict)) and part in value:
            value = value[part]
        elif isinstance(value, (list, tuple, nn.ModuleList, nn.Sequential)) and part.isdigit():
            value = value[int(part)]
        else:
            value = getattr(value, part)
    return value


def primary_module(model: Any, spec: ModelTrainingSpec) -> tuple[str, nn.Module] | None:
    """Return the first of ``module_paths`` that is a module with a trainable parameter."""
    for path in spec.module_paths:
        try:
            module = resolve_path(model, path)
        except (AttributeError, KeyError, IndexError):
            continue
        if isinstance(module, nn.Module) and any(p.requires_grad for p in module.parameters()):
            return path, module
    return None


def declared_components(model: Any, spec: ModelTrainingSpec) -> dict[str, Any]:
    """Resolve every path that the spec or a phase declares.

    Raises:
        ComponentError: a declared path does not resolve, or what trains there is no module.
    """
    module_paths: dict[str, str] = dict.fromkeys(spec.component_paths, "component_paths")
    callables: dict[str, str] = {}
    for phase in spec.phases:
        where = f"phase {phase.name!r}"
        for path in (*phase.component_paths, *phase.frozen_component_paths):
            module_paths.setdefault(path, where)
        if phase.forward_component is not None:
            callables.setdefault(phase.forward_component, where)
    components: dict[str, Any] = {}
    for path, where in {**callables, **module_paths}.items():
        try:
            value = resolve_path(model, path)
        except (AttributeError, KeyError, IndexError) as error:
            raise ComponentError(
                f"{spec.model_type}: the declared path {path!r} of {where} does not resolve on "
                f"{type(model).__name__} ({error}). Correct the path in the spec; nothing else is "
                "trained in its place."
            ) from error
        if path in module_paths and not isinstance(value, nn.Module):
            raise ComponentError(
                f"{spec.model_type}: the declared path {path!r} of {where} is a "
                f"{type(value).__name__}, not a torch.nn.Module."
            )
        components[path] = value
    return components


def build_root(components: Mapping[str, nn.Module]) -> nn.Module:
    """Return one module that holds every component: the only root itself, or a dict of roots.

    A root is a component that lies within no other. Names are the component paths with
    ``/`` for ``.``, so that state keys do not depend on what else is declared.
    """
    roots: dict[str, nn.Module] = {}
    for path, module in components.items():
        inside = any(
            other is not module and any(module is part for part in other.modules())
            for other in components.values()
        )
        if not inside and not any(module is known for known in roots.values()):
            roots[path] = module
    if len(roots) == 1:
        return next(iter(roots.values()))
    return nn.ModuleDict({path.replace(".", "/"): module for path, module in roots.items()})


def phase_paths(
    phase: TrainingPhaseSpec, spec: ModelTrainingSpec, primary: str | None
) -> tuple[str, ...]:
    """Return the component paths that a phase optimises, explicit or implied."""
    if phase.component_paths:
        return phase.component_paths
    implied: Iterable[str] = (primary,) if primary is not None else ()
    return tuple(dict.fromkeys((*implied, *spec.component_paths)))
