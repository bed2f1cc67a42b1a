"""Check the routes that a pass returns, by the rules that hold for those of a recipe."""

from __future__ import annotations

from torch import nn

from voicehub.errors import RecipeError
from voicehub.passes.contract import Routes


def check_routes(model: nn.Module, routes: Routes) -> None:
    """Require every trainable parameter of ``model`` exactly once.

    Raises:
        RecipeError: names the parameter and its routes.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    owners: dict[nn.Parameter, str] = {}
    for route, named in routes.items():
        if not named:
            raise RecipeError(f"Route {route!r} owns no parameter after the passes.")
        for name, parameter in named:
            if parameter not in names:
                raise RecipeError(
                    f"Route {route!r} holds {name!r}, which is foreign to the changed model."
                )
            if parameter in owners:
                raise RecipeError(
                    f"Parameter {names[parameter]!r} is routed to both {owners[parameter]!r} and "
                    f"{route!r}."
                )
            owners[parameter] = route
    missing = [n for p, n in names.items() if p.requires_grad and p not in owners]
    if missing:
        raise RecipeError(
            f"{', '.join(map(repr, missing[:5]))} would never train: the passes made them and "
            "route them to no optimizer."
        )
