"""Schedules against their closed forms, torch's implementations and their own state."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError
from voicehub.optim.schedule_names import SCHEDULES
from voicehub.optim.schedules import ClosedFormScheduler, PlateauScheduler, make_multiplier

TOTAL, WARMUP = 100, 10


def triangle(position: int) -> float:
    """From 0 up to 1 in 15 updates and down again."""
    return position / 15 if position <= 15 else (30 - position) / 15


CLOSED_FORMS = {
    "linear": lambda n: (TOTAL - n) / (TOTAL - WARMUP),
    "cosine": lambda n: 0.5 * (1 + math.cos(math.pi * (n - WARMUP) / (TOTAL - WARMUP))),
    "constant_with_warmup": lambda n: 1.0,
    "inverse_sqrt": lambda n: 1 / math.sqrt(n / WARMUP),
    "inverse_power": lambda n: (1 + (n - WARMUP) / 40) ** -0.75,
    "noam": lambda n: 64**-0.5 * min((n + 1) ** -0.5, (n + 1) * WARMUP**-1.5),
    "exponential": lambda n: 0.97 ** (n - WARMUP),
    "polynomial": lambda n: ((TOTAL - n) / (TOTAL - WARMUP)) ** 3,
    "step": lambda n: 0.5 ** ((n - WARMUP) // 20),
    "multistep": lambda n: 0.5 ** ((n >= 30) + (n >= 75)),
    "triangular": lambda n: 0.1 + 0.9 * 0.5 ** ((n - WARMUP) // 30) * triangle((n - WARMUP) % 30),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "inverse_power": {"timescale": 40, "power": 0.75},
    "noam": {"model_dim": 64},
    "multistep": {"milestones": [30, 75], "gamma": 0.5},
    "triangular": {"period": 30, "gamma": 0.5, "min_lr_ratio": 0.1},
    "exponential": {"gamma": 0.97},
    "polynomial": {"power": 3.0},
    "step": {"step_size": 20, "gamma": 0.5},
}


def optimizer(lr: float = 1.0) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


@pytest.mark.parametrize("name", sorted(CLOSED_FORMS))
def test_rate_follows_the_formula_at_every_update(name: str) -> None:
    multiplier = make_multiplier(name, TOTAL, WARMUP, OPTIONS.get(name))
    for n in range(WARMUP):
        warm = CLOSED_FORMS[name](n) if name == "noam" else n / WARMUP
        assert multiplier(n) == pytest.approx(warm)
    for n in range(WARMUP, TOTAL + 1):
        assert multiplier(n) == pytest.approx(CLOSED_FORMS[name](n), abs=1e-12)


def test_every_schedule_has_a_formula_in_this_test_or_its_own() -> None:
    assert set(SCHEDULES) == {*CLOSED_FORMS, "constant", "plateau"}


def test_constant_without_warmup() -> None:
    assert [make_multiplier("constant", 5, 0)(n) for n in range(6)] == [1.0] * 6


@pytest.mark.parametrize("name", ["linear", "cosine", "polynomial"])
def test_min_lr_ratio_is_the_floor(name: str) -> None:
    multiplier = make_multiplier(name, TOTAL, WARMUP, {"min_lr_ratio": 0.1})
    assert multiplier(TOTAL) == pytest.approx(0.1)
    assert multiplier(WARMUP) == pytest.approx(1.0)
    assert multiplier(TOTAL + 50) == pytest.approx(0.1)


@pytest.mark.parametrize("name", sorted(SCHEDULES.keys() - {"constant"}))
def test_warmup_that_never_ends_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="not shorter than the run"):
        make_multiplier(name, 10, 10, OPTIONS.get(name))


def test_constant_refuses_a_warmup() -> None:
    with pytest.raises(ConfigurationError, match="constant_with_warmup"):
        make_multiplier("constant", 10, 2)


def test_unknown_option_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="power"):
        make_multiplier("polynomial", 10, 0, {"powr": 2})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("step", {}, "needs 'step_size'"),
        ("step", {"step_size": 0}, "step_size must be at least 1"),
        ("multistep", {"milestones": 3}, "must be a list of updates, got 3"),
        ("multistep", {"milestones": [5, 3]}, "rising counts"),
        ("linear", {"min_lr_ratio": [1]}, "must be a number"),
        ("triangular", {"period": 0}, "period must be at least 1"),
        ("inverse_power", {"timescale": -1}, "timescale must be at least 1"),
        ("noam", {}, "needs 'model_dim'"),
    ],
)
def test_options_that_make_no_schedule(name: str, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_multiplier(name, 10, 0, options)


def test_noam_needs_a_warmup_and_peaks_at_its_end() -> None:
    with pytest.raises(ConfigurationError, match="noam"):
        make_multiplier("noam", 10, 0, OPTIONS["noam"])
    multiplier = make_multiplier("noam", TOTAL, WARMUP, OPTIONS["noam"])
    rates = [multiplier(n) for n in range(TOTAL)]
    assert max(rates) == rates[WARMUP - 1] == pytest.approx((64 * WARMUP) ** -0.5)


def test_milestones_count_from_the_start_of_the_run_and_steps_from_the_end_of_the_warmup() -> None:
    stones = make_multiplier("multistep", TOTAL, WARMUP, {"milestones": [20], "gamma": 0.5})
    assert (stones(19), stones(20)) == (1.0, 0.5)
    steps = make_multiplier("step", TOTAL, WARMUP, {"step_size": 20, "gamma": 0.5})
    assert (steps(29), steps(30)) == (1.0, 0.5)


@given(st.sampled_from(sorted(CLOSED_FORMS)), st.integers(1, 90))
def test_state_restores_the_position_exactly(name: str, done: int) -> None:
    def fresh() -> ClosedFormScheduler:
        return ClosedFormScheduler(
            optimizer(0.3), make_multiplier(name, TOTAL, WARMUP, OPTIONS.get(name))
        )

    straight = fresh()
    for _ in range(done):
        straight.step()
    resumed = fresh()
    resumed.load_state_dict(straight.state_dict())
    for _ in range(5):
        assert resumed.get_last_lr() == straight.get_last_lr()
        resumed.step()
        straight.step()


def test_each_group_keeps_its_own_base_rate() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups = [{"params": [parameters[0]], "lr": 1.0}, {"params": [parameters[1]], "lr": 0.1}]
    scheduler = ClosedFormScheduler(torch.optim.SGD(groups), make_multiplier("linear", 10, 0))
    for _ in range(5):
        scheduler.step()
    assert scheduler.get_last_lr() == pytest.approx([0.5, 0.05])


def plateau(**options: float) -> PlateauScheduler:
    return PlateauScheduler(
        optimizer(),
        make_multiplier("plateau", 100, 0, options),
        greater_is_better=False,
        options=options,
    )


def test_plateau_agrees_with_torch() -> None:
    values = [5.0, 4.0, 4.1, 4.2, 4.0, 3.9999, 3.5, 3.6, 3.6, 3.6, 3.6, 3.6, 3.6]
    ours = plateau(factor=0.5, patience=1, threshold=1e-4)
    reference_optimizer = optimizer()
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(
        reference_optimizer, factor=0.5, patience=1, threshold=1e-4
    )
    for value in values:
        ours.step_metric(value)
        reference.step(value)
        assert ours.get_last_lr()[0] == pytest.approx(reference_optimizer.param_groups[0]["lr"])


def test_plateau_counts_nan_as_no_improvement_and_keeps_its_state() -> None:
    scheduler = plateau(factor=0.5, patience=0)
    scheduler.step_metric(1.0)
    scheduler.step_metric(float("nan"))
    assert scheduler.get_last_lr() == [0.5]
    again = plateau(factor=0.5, patience=0)
    again.load_state_dict(scheduler.state_dict())
    assert again.get_last_lr() == [0.5]
    again.step_metric(0.5)
    assert again.best == 0.5
