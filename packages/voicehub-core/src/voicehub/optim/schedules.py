"""Learning-rate schedules in closed form: the rate of update ``n`` is a pure function of ``n``.

Nothing accumulates, so a resumed schedule equals the uninterrupted one by construction. Update
counts start at 0, as in transformers: the first update of a warm-up of W uses 0/W.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch.optim import Optimizer

from voicehub.errors import ConfigurationError
from voicehub.optim.schedule_names import SCHEDULES, Options, check_schedule_options

Multiplier = Callable[[int], float]


class Scheduler(Protocol):
    """What the Trainer needs of a scheduler; torch's own satisfy it."""

    def step(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...
    def get_last_lr(self) -> list[float]: ...


def _linear(n: int, total: int, warmup: int, o: Mapping[str, Any]) -> float:
    left = max(0.0, (total - n) / max(1, total - warmup))
    return float(o["min_lr_ratio"] + (1.0 - o["min_lr_ratio"]) * left)


def _cosine(n: int, total: int, warmup: int, o: Mapping[str, Any]) -> float:
    progress = min(1.0, (n - warmup) / max(1, total - warmup))
    wave = max(0.0, 0.5 * (1.0 + math.cos(math.pi * 2.0 * o["num_cycles"] * progress)))
    return float(o["min_lr_ratio"] + (1.0 - o["min_lr_ratio"]) * wave)


def _constant(n: int, total: int, warmup: int, o: Mapping[str, Any]) -> float:
    return 1.0


def _inverse_sqrt(n: int, total: int, warmup: int, o: Mapping[str, Any]) -> float:
    timescale = o["timescale"] or max(1, warmup)
    return float(1.0 / math.sqrt((n + timescale - warmup) / timescale))


def _inverse_power(n: int, total: int, warmup: int, o: Mapping[str, Any]) -> float:
    return float((1.0 + (n - warmup) / o["timescale"]) ** -o["power"])


def _noam(n: int, total: int, warmup: int, o: Mapping[str, Any]) -> float:
    """Vaswani et al., 2017, section 5.3; updates count from 1 there. Warms up by itself."""
    step = n + 1
    return float(o["model_dim"] ** -0.5 * min(step**-0.5, step * warmup**-1.5))


def _exponential(n: int, total: int, warmup: int, o: Mapping[str, Any]) -> float:
    return float(o["gamma"] ** (n - warmup))


def _polynomial(n: int, total: int, warmup: int, o: Mapping[str, Any]) -> float:
    left = max(0.0, (total - n) / max(1, total - warmup))
    return float(o["min_lr_ratio"] + (1.0 - o["min_lr_ratio"]) * left ** o["power"])


def _step(n: int, total: int, warmup: int, o: Mapping[str, Any]) -> float:
    return float(o["gamma"] ** ((n - warmup) // int(o["step_size"])))


def _multistep(n: int, total: int, warmup: int, o: Mapping[str, Any]) -> float:
    """Milestones count from the start of the run, warm-up included."""
    return float(o["gamma"] ** bisect_right(o["milestones"], n))


def _triangular(n: int, total: int, warmup: int, o: Mapping[str, Any]) -> float:
    """Smith, 2017: up and down in ``period`` updates, each peak ``gamma`` times the one before."""
    cycle, position = divmod(n - warmup, o["period"])
    height = o["gamma"] ** cycle * (1.0 - abs(2.0 * position / o["period"] - 1.0))
    return float(o["min_lr_ratio"] + (1.0 - o["min_lr_ratio"]) * height)


_AFTER_WARMUP: dict[str, Callable[[int, int, int, Mapping[str, Any]], float]] = {
    "linear": _linear,
    "cosine": _cosine,
    "constant": _constant,
    "constant_with_warmup": _constant,
    "inverse_sqrt": _inverse_sqrt,
    "inverse_power": _inverse_power,
    "noam": _noam,
    "exponential": _exponential,
    "polynomial": _polynomial,
    "step": _step,
    "multistep": _multistep,
    "triangular": _triangular,
    "plateau": _constant,  # PlateauScheduler multiplies its own factor
}


def make_multiplier(
    name: str, total: int, warmup: int, options: Options | None = None
) -> Multiplier:
    """The factor on the base learning rate as a function of the updates done so far.

    Args:
        name: one of ``SCHEDULES``.
        total: updates of the whole run for this route.
        warmup: updates of linear warm-up; ``constant`` has none and refuses one, ``noam`` has it
            in its formula and needs one.
        options: the schedule's own options.

    Raises:
        ConfigurationError: the warm-up is not shorter than the run, or does not apply.
        ValueError: an option is unknown or missing.
    """
    given = dict(options or {})
    check_schedule_options(name, given)
    settings = {**{k: v for k, v in SCHEDULES[name].items() if v is not None}, **given}
    if name == "constant" and warmup:
        raise ConfigurationError(
            "lr_scheduler_type='constant' has no warm-up; use 'constant_with_warmup'."
        )
    if name == "noam" and not warmup:
        raise ConfigurationError("lr_scheduler_type='noam' needs warmup_steps or warmup_ratio.")
    if warmup >= total > 0 and warmup > 0:
        raise ConfigurationError(
            f"The warm-up ({warmup} updates) is not shorter than the run ({total} updates): the "
            "learning rate would never reach its value. Lower warmup_steps or train longer."
        )
    after = _AFTER_WARMUP[name]

    def multiplier(n: int) -> float:
        if n < warmup and name != "noam":
            return n / warmup
        return after(n, total, warmup, settings)

    return multiplier


class ClosedFormScheduler:
    """Sets each group's rate to its base rate times ``multiplier(updates done)``."""

    def __init__(self, optimizer: Optimizer, multiplier: Multiplier) -> None:
        self.optimizer = optimizer
        self.multiplier = multiplier
        self.updates = 0
        self.base_lrs = [
            float(group.setdefault("initial_lr", group["lr"])) for group in optimizer.param_groups
        ]
        self._apply()

    def _apply(self) -> None:
        factor = self.multiplier(self.updates)
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = base * factor

    def step(self) -> None:
        """Advance by one update."""
        self.updates += 1
        self._apply()

    def get_last_lr(self) -> list[float]:
        """Rates in force, one a parameter group."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Updates done and base rates."""
        return {"updates": self.updates, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the position and set the rates of that position."""
        self.updates = int(state_dict["updates"])
        self.base_lrs = [float(value) for value in state_dict["base_lrs"]]
        self._apply()


class PlateauScheduler(ClosedFormScheduler):
    """Warm-up, then the rate is multiplied by ``factor`` when the metric stops improving."""

    def __init__(
        self,
        optimizer: Optimizer,
        multiplier: Multiplier,
        *,
        greater_is_better: bool,
        options: Options | None = None,
    ) -> None:
        settings: dict[str, Any] = {**SCHEDULES["plateau"], **(options or {})}
        self.factor = float(settings["factor"])
        self.patience = int(settings["patience"])
        self.threshold = float(settings["threshold"])
        self.min_ratio = float(settings["min_lr_ratio"])
        self.greater_is_better = greater_is_better
        self.scale = 1.0
        self.best: float | None = None
        self.bad_evaluations = 0
        super().__init__(optimizer, multiplier)

    def _apply(self) -> None:
        factor = self.multiplier(self.updates) * self.scale
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = base * factor

    def step_metric(self, value: float) -> None:
        """Take one evaluation; a value that is not finite counts as no improvement."""
        if math.isfinite(value) and self._improves(value):
            self.best, self.bad_evaluations = value, 0
            return
        self.bad_evaluations += 1
        if self.bad_evaluations > self.patience:
            self.scale = max(self.min_ratio, self.scale * self.factor)
            self.bad_evaluations = 0
            self._apply()

    def _improves(self, value: float) -> bool:
        if self.best is None:
            return True
        margin = abs(self.best) * self.threshold
        if self.greater_is_better:
            return value > self.best + margin
        return value < self.best - margin

    def state_dict(self) -> dict[str, Any]:
        """Position, scale and the best evaluation so far."""
        own = {"scale": self.scale, "best": self.best, "bad_evaluations": self.bad_evaluations}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore all of ``state_dict``."""
        self.scale = float(state_dict["scale"])
        best = state_dict["best"]
        self.best = None if best is None else float(best)
        self.bad_evaluations = int(state_dict["bad_evaluations"])
        super().load_state_dict(state_dict)
