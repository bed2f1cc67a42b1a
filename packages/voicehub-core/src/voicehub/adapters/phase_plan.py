"""What a phase needs at every micro-batch, resolved once at set-up."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn

from voicehub.adapters.freezing import frozen_parameters
from voicehub.adapters.inputs import (
    NESTED_KEY,
    PHASE_KEY,
    apply_aliases,
    check_required,
    detach_paths,
    flatten_model_inputs,
)
from voicehub.adapters.losses import LossRule
from voicehub.adapters.routes import NamedParameters, parameters_of, route_names
from voicehub.specs.phase import TrainingPhaseSpec

_OPEN = nullcontext()


@dataclass(slots=True, frozen=True)
class PhasePlan:
    """One phase with everything resolved.

    Attributes:
        phase: The declaration.
        call: The forward: a module, or a bound method.
        rule: How its output becomes a loss.
        frozen: Parameters without gradient in this phase.
        in_eval: Modules in eval mode during this phase.
        added: How many of ``frozen`` the run's settings added to what the spec declares.
        dropped_labels: Labels that only the fallback objective reads, not the forward.
        as_given: Whether inputs need nothing but flattening.
    """

    phase: TrainingPhaseSpec
    call: Callable[..., Any]
    rule: LossRule
    frozen: tuple[nn.Parameter, ...]
    dropped_labels: frozenset[str]
    as_given: bool
    in_eval: tuple[nn.Module, ...] = ()
    added: int = 0

    def boundaries(self) -> AbstractContextManager[None]:
        """Return a context in which what the phase freezes takes no gradient and does not drop."""
        if not self.frozen and not self.in_eval:
            return _OPEN
        return frozen_parameters(self.frozen, self.in_eval)

    def prepare(self, inputs: Any) -> Any:
        """Return the phase's inputs from a batch; the batch itself is never changed.

        A mapping is flattened, checked, aliased and detached; anything else passes.
        """
        if not isinstance(inputs, Mapping):
            return inputs
        if NESTED_KEY in inputs or PHASE_KEY in inputs:
            inputs = flatten_model_inputs(inputs)
        if self.as_given:
            return inputs
        check_required(inputs, self.phase)
        if self.phase.detach_inputs:
            inputs = detach_paths(inputs, self.phase)
        if self.phase.input_aliases:
            inputs = apply_aliases(inputs, self.phase)
        return inputs

    def forward(self, inputs: Any) -> Any:
        """Call the forward component: a mapping by keyword, a sequence by position."""
        if isinstance(inputs, Mapping):
            if self.dropped_labels:
                inputs = {k: v for k, v in inputs.items() if k not in self.dropped_labels}
            return self.call(**inputs)
        if isinstance(inputs, (tuple, list)):
            return self.call(*inputs)
        return self.call(inputs)


def unread_labels(phase: TrainingPhaseSpec, call: Callable[..., Any]) -> frozenset[str]:
    """Return label names that a fallback objective reads but the forward does not accept."""
    if phase.fallback_objective is None:
        return frozenset()
    target = call.forward if isinstance(call, nn.Module) else call
    parameters = inspect.signature(target).parameters
    if any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values()):
        return frozenset()
    return frozenset(name for name in phase.label_names if name not in parameters)


def frozen_in_phase(
    phase: TrainingPhaseSpec,
    routes: Mapping[str, NamedParameters],
    components: Mapping[str, nn.Module],
    *,
    isolate: bool,
) -> tuple[nn.Parameter, ...]:
    """Return what gets no gradient in a phase: what it declares, and what other routes own."""
    frozen = parameters_of(phase.frozen_component_paths, components)
    if isolate:
        own = route_names(phase)
        foreign: Iterable[NamedParameters] = (
            named for route, named in routes.items() if route not in own
        )
        frozen.update((parameter, None) for named in foreign for _, parameter in named)
    return tuple(parameter for parameter in frozen if parameter.requires_grad)
