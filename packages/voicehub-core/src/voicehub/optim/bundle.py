"""One optimizer and one scheduler per route, addressed by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from voicehub.errors import CheckpointMismatchError
from voicehub.optim.schedules import Scheduler


def _check_names(kind: str, current: Iterable[str], saved: Iterable[str]) -> None:
    if set(current) != set(saved):
        raise CheckpointMismatchError(
            f"The {kind} topology differs: this run has {sorted(current)}, the state holds "
            f"{sorted(saved)}."
        )


class OptimizerBundle:
    """Optimizers by route name; steps and clears only the routes asked for."""

    def __init__(self, optimizers: Mapping[str, Optimizer]) -> None:
        self.optimizers = dict(optimizers)
        self._parameters: dict[str, list[nn.Parameter]] = {
            name: [p for group in optimizer.param_groups for p in group["params"]]
            for name, optimizer in self.optimizers.items()
        }

    def __getitem__(self, name: str) -> Optimizer:
        return self.optimizers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.optimizers)

    def parameters(self, name: str) -> list[nn.Parameter]:
        """All parameters of one route, frozen ones included."""
        return self._parameters[name]

    def step(self, names: Iterable[str] | None = None) -> None:
        """Step the named routes, all by default."""
        for name in self.optimizers if names is None else names:
            self.optimizers[name].step()

    def zero_grad(self, names: Iterable[str] | None = None) -> None:
        """Drop the gradients of the named routes, all by default."""
        for name in self.optimizers if names is None else names:
            for parameter in self._parameters[name]:
                parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """State by route name."""
        return {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load all routes or none: names are checked before anything changes."""
        _check_names("optimizer", self.optimizers, state)
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state[name])


class SchedulerBundle:
    """Schedulers by route name."""

    def __init__(self, schedulers: Mapping[str, Scheduler]) -> None:
        self.schedulers = dict(schedulers)

    def __getitem__(self, name: str) -> Scheduler:
        return self.schedulers[name]

    def step(self, names: Iterable[str] | None = None) -> None:
        """Advance the named routes by one update each, all by default."""
        for name in self.schedulers if names is None else names:
            self.schedulers[name].step()

    def step_metric(self, value: float) -> None:
        """Hand an evaluation to the schedules that follow one."""
        for scheduler in self.schedulers.values():
            follow = getattr(scheduler, "step_metric", None)
            if follow is not None:
                follow(value)

    def learning_rates(self) -> dict[str, float]:
        """Rate of the first parameter group of each route."""
        return {name: s.get_last_lr()[0] for name, s in self.schedulers.items()}

    def state_dict(self) -> dict[str, Any]:
        """State by route name."""
        return {name: scheduler.state_dict() for name, scheduler in self.schedulers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load all routes or none: names are checked before anything changes."""
        _check_names("scheduler", self.schedulers, state)
        for name, scheduler in self.schedulers.items():
            scheduler.load_state_dict(state[name])
