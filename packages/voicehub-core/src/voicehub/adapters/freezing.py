"""Freeze boundaries of a phase, and the modules that must stay in eval mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def frozen_parameters(
    parameters: Iterable[nn.Parameter], modules: Iterable[nn.Module] = ()
) -> Iterator[None]:
    """Set ``requires_grad`` False on parameters, and restore what was True, also on errors.

    ``modules`` are in eval mode meanwhile, with all below them.

    A parameter that is frozen while the forward runs gets no node in the graph, so the backward
    never writes its gradient, while gradients still flow through the operation to its inputs.
    Hold the same boundary around the backward as well where activations are recomputed in it.
    """
    changed: list[nn.Parameter] = []
    stilled: list[nn.Module] = []
    try:
        for module in modules:
            stilled += [part for part in module.modules() if part.training]
            module.eval()
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.requires_grad_(False)
                changed.append(parameter)
        yield
    finally:
        for parameter in changed:
            parameter.requires_grad_(True)
        for part in stilled:
            part.training = True


def frozen_modules(
    module: nn.Module, is_trainable: Callable[[nn.Parameter], bool]
) -> tuple[nn.Module, ...]:
    """Return the topmost modules that hold parameters of which none is trainable.

    These stay in eval mode: a frozen BatchNorm must not move its statistics, and a frozen
    encoder must not drop out.
    """
    facts: dict[nn.Module, tuple[bool, bool]] = {}
    _holds(module, is_trainable, facts)
    found: dict[nn.Module, None] = {}
    pending = [module]
    while pending:
        candidate = pending.pop()
        any_parameter, any_trainable = facts[candidate]
        if any_parameter and not any_trainable:
            found[candidate] = None
        elif any_parameter:
            pending.extend(candidate.children())
    return tuple(found)


def _holds(
    module: nn.Module,
    is_trainable: Callable[[nn.Parameter], bool],
    facts: dict[nn.Module, tuple[bool, bool]],
) -> tuple[bool, bool]:
    """Record for a module and all below it: holds a parameter, holds a trainable one."""
    if module in facts:
        return facts[module]
    own = list(module.parameters(recurse=False))
    any_parameter, any_trainable = bool(own), any(map(is_trainable, own))
    for child in module.children():
        below, trainable = _holds(child, is_trainable, facts)
        any_parameter, any_trainable = any_parameter or below, any_trainable or trainable
    facts[module] = (any_parameter, any_trainable)
    return facts[module]
