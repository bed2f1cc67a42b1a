"""Optimizer routes: which name owns which parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from voicehub.errors import RecipeError
from voicehub.specs.phase import TrainingPhaseSpec

DEFAULT_ROUTE = "default"
NamedParameters = tuple[tuple[str, nn.Parameter], ...]


def route_names(phase: TrainingPhaseSpec) -> tuple[str, ...]:
    """Return the routes a phase steps, each once."""
    return tuple(dict.fromkeys(phase.optimizer_names)) or (DEFAULT_ROUTE,)


def build_routes(
    root: nn.Module,
    phases: Iterable[tuple[TrainingPhaseSpec, tuple[str, ...]]],
    components: Mapping[str, nn.Module],
) -> dict[str, NamedParameters]:
    """Give every trainable parameter of ``root`` its one owner.

    Args:
        root: Holds every component; its parameter names are the ones reported.
        phases: Each phase with the component paths it optimises.
        components: Modules by path.

    Raises:
        RecipeError: a parameter belongs to two routes, or to none, or nothing trains at all.
    """
    phases = list(phases)
    owners: dict[nn.Parameter, str] = {}
    frozen_by_design: set[nn.Parameter] = set()
    names = {parameter: name for name, parameter in root.named_parameters()}
    routes: dict[str, dict[str, nn.Parameter]] = {}
    for phase, paths in phases:
        frozen = parameters_of(phase.frozen_component_paths, components)
        optimizers = phase.optimizer_names or (DEFAULT_ROUTE,)
        if len(optimizers) == 1:
            optimizers = optimizers * len(paths)
        for path, optimizer in zip(paths, optimizers, strict=True):
            route = routes.setdefault(optimizer, {})
            for parameter in components[path].parameters():
                if not parameter.requires_grad:
                    continue
                if parameter in frozen:
                    frozen_by_design.add(parameter)
                    continue
                owner = owners.setdefault(parameter, optimizer)
                if owner != optimizer:
                    raise RecipeError(
                        f"Parameter {names[parameter]!r} is routed to both {owner!r} and "
                        f"{optimizer!r}. Give its component to one optimizer, or list it in the "
                        f"frozen_component_paths of the phase that must not train it."
                    )
                route[names[parameter]] = parameter
    _check_complete(names, owners, frozen_by_design, routes)
    return {name: tuple(route.items()) for name, route in routes.items()}


def parameters_of(
    paths: Iterable[str], components: Mapping[str, nn.Module]
) -> dict[nn.Parameter, None]:
    """Return the parameters below the given component paths, in order, each once."""
    return {parameter: None for path in paths for parameter in components[path].parameters()}


def check_optimizers(optimizers: Mapping[str, Any], routes: Mapping[str, NamedParameters]) -> None:
    """Check optimizers that a user made against the routes.

    Args:
        optimizers: ``torch.optim.Optimizer`` by route name.
        routes: The adapter's routes.

    Raises:
        RecipeError: names differ; a parameter is foreign to the model, in two optimizers, in
            the optimizer of another route, or in none.
    """
    if set(optimizers) != set(routes):
        raise RecipeError(
            f"Optimizers {sorted(optimizers)} do not match the recipe's routes {sorted(routes)}."
        )
    homes = {
        parameter: (route, name) for route, named in routes.items() for name, parameter in named
    }
    seen: dict[nn.Parameter, str] = {}
    for route, optimizer in optimizers.items():
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            shape = tuple(parameter.shape)
            if parameter not in homes:
                if not parameter.requires_grad:
                    continue
                raise RecipeError(
                    f"The optimizer of route {route!r} holds a parameter of shape {shape} that is "
                    "foreign to the model. Build the optimizer from the parameters of the model "
                    "that is trained."
                )
            home, name = homes[parameter]
            if parameter in seen:
                raise RecipeError(
                    f"Parameter {name!r} is in the optimizers of {seen[parameter]!r} and "
                    f"{route!r}; it would step twice."
                )
            if home != route:
                raise RecipeError(
                    f"Parameter {name!r} belongs to route {home!r} but is in the optimizer of "
                    f"{route!r}."
                )
            seen[parameter] = route
    missing = [name for parameter, (_, name) in homes.items() if parameter not in seen]
    if missing:
        raise RecipeError(
            f"{_list(missing)} would never train: no optimizer holds them. Add them, or freeze "
            "them with requires_grad_(False) before training."
        )


def _check_complete(
    names: Mapping[nn.Parameter, str],
    owners: Mapping[nn.Parameter, str],
    frozen_by_design: set[nn.Parameter],
    routes: Mapping[str, Mapping[str, nn.Parameter]],
) -> None:
    if not owners:
        raise RecipeError(
            "Nothing trains: no component of the recipe has a trainable parameter. Unfreeze what "
            "is to learn with requires_grad_(True)."
        )
    unowned = [
        name
        for parameter, name in names.items()
        if parameter.requires_grad and parameter not in owners and parameter not in frozen_by_design
    ]
    if unowned:
        raise RecipeError(
            f"{_list(unowned)} would never train: trainable, but owned by no phase. Add the "
            "component to the component_paths of a phase, or freeze it with "
            "module.requires_grad_(False) before training."
        )
    empty = [name for name, route in routes.items() if not route]
    if empty:
        raise RecipeError(
            f"Route {empty[0]!r} owns no trainable parameter; its components are all frozen."
        )


def _list(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"Parameter {shown}{more}"
