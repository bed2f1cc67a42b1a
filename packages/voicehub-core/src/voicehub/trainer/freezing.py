"""Freeze rules of a run: resolved on the model, for ever, in one phase, or by schedule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.name_patterns import NamedGraph
from voicehub.adapters.routes import route_names
from voicehub.errors import ConfigurationError
from voicehub.optim.rules import FreezeRule
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub.suggest import did_you_mean
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState


@dataclass(frozen=True)
class _Resolved:
    rule: FreezeRule
    parameters: tuple[nn.Parameter, ...]
    modules: tuple[nn.Module, ...]


class FreezePolicy:
    """The rules of ``TrainingArguments.freeze`` on a set-up adapter.

    What a rule freezes for the whole run leaves the routes, so no optimizer holds it. The other
    rules are a pure function of the step: ``apply(step)`` brings the model to that step's state,
    which makes a resume exact without any state of its own.

    Raises:
        ConfigurationError: a pattern matches nothing, a phase is unknown, or a phase would have
            nothing to train in some steps.
    """

    def __init__(self, adapter: TrainingAdapter, rules: Sequence[FreezeRule]) -> None:
        self.adapter = adapter
        graph = NamedGraph(adapter.module)
        resolved = [self._resolve(rule, graph) for rule in rules]
        self._for_ever = [item for item in resolved if item.rule.is_permanent]
        self._timed = [item for item in resolved if not item.rule.is_permanent]
        self._held: dict[nn.Parameter, None] = {}
        self._freeze_for_ever()
        edges = {item.rule.from_step for item in self._timed}
        edges |= {item.rule.until_step for item in self._timed if item.rule.until_step is not None}
        #: Steps at which something changes.
        self.changes = frozenset(edges)
        self._check_every_phase_trains()

    def _resolve(self, rule: FreezeRule, graph: NamedGraph) -> _Resolved:
        names = [phase.name for phase in self.adapter.phases]
        if rule.phase is not None and rule.phase not in names:
            raise ConfigurationError(
                f"freeze '{rule.pattern}': the recipe has no phase '{rule.phase}', only "
                f"{', '.join(names)}.{did_you_mean(rule.phase, names)}"
            )
        found = graph.match(rule.pattern, "freeze")
        return _Resolved(rule, tuple(found.parameters.values()), found.modules)

    def _freeze_for_ever(self) -> None:
        if not self._for_ever:
            return
        for item in self._for_ever:
            for parameter in item.parameters:
                parameter.requires_grad_(False)
        self.adapter.routes = {
            name: tuple((key, p) for key, p in named if p.requires_grad)
            for name, named in self.adapter.routes.items()
        }
        self.adapter.keep_in_eval(_modules(self._for_ever))

    def apply(self, step: int) -> None:
        """Freeze and unfreeze for the update after ``step`` updates."""
        active = [item for item in self._timed if item.rule.holds(step)]
        everywhere = [item for item in active if item.rule.phase is None]
        wanted = _parameters(everywhere)
        for parameter in [p for p in self._held if p not in wanted]:
            parameter.requires_grad_(True)
            del self._held[parameter]
        for parameter in wanted:
            if parameter.requires_grad:
                parameter.requires_grad_(False)
                self._held[parameter] = None
        for phase in self.adapter.phases:
            here = [item for item in active if item.rule.phase == phase.name]
            self.adapter.freeze_in_phase(phase.name, list(_parameters(here)), _modules(here))
        self.adapter.keep_in_eval(_modules([*self._for_ever, *everywhere]))

    def _check_every_phase_trains(self) -> None:
        for step in sorted({0, *self.changes}):
            active = [item for item in self._timed if item.rule.holds(step)]
            for phase in self.adapter.phases:
                here = [item for item in active if item.rule.phase in (None, phase.name)]
                if not self._trains(phase, _parameters(here)):
                    raise ConfigurationError(
                        f"freeze: phase '{phase.name}' would have nothing to train from step "
                        f"{step} on. Leave a part of it free, or give the rules an until_step."
                    )

    def _trains(self, phase: TrainingPhaseSpec, held: dict[nn.Parameter, None]) -> bool:
        frozen = {*held, *self.adapter.frozen_in_phase(phase.name)}
        owned = (p for name in route_names(phase) for _, p in self.adapter.routes[name])
        return any(parameter not in frozen for parameter in owned)

    def frozen_when(self, parameters: Iterable[nn.Parameter]) -> str:
        """When rules freeze some of these parameters, in words; empty for never."""
        wanted = set(parameters)
        return ", ".join(
            f"'{item.rule.pattern}' {item.rule.when}"
            for item in self._timed
            if wanted.intersection(item.parameters)
        )


def _parameters(items: Iterable[_Resolved]) -> dict[nn.Parameter, None]:
    return {parameter: None for item in items for parameter in item.parameters}


def _modules(items: Iterable[_Resolved]) -> list[nn.Module]:
    return list({module: None for item in items for module in item.modules})


class FreezeCallback(TrainerCallback):
    """Follows the schedule of a run's freeze rules; in the run only where there is one."""

    def __init__(self) -> None:
        self._policy: FreezePolicy | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Bring the model to the state of the step that training starts from."""
        self._policy = context["trainer"].graph.freezing
        assert self._policy is not None
        self._policy.apply(state.global_step)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Apply what changes at this step."""
        if self._policy is not None and state.global_step in self._policy.changes:
            self._policy.apply(state.global_step)
