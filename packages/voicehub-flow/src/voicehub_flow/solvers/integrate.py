"""From noise to data along a velocity field."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Method = Literal["euler", "midpoint"]
#: ``velocity_fn(t, x)``: t is a scalar tensor of x's type and device, the result of x's shape.
VelocityField = Callable[[Tensor, Tensor], Tensor]


def solver_times(steps: int, *, sway: float = 0.0) -> Tensor:
    """Return the ``steps + 1`` points of a solver from 0 to 1, float64.

    Args:
        steps: how many.
        sway: moves points towards the noise (under 0) or the data (over 0), as
            ``t + sway (cos(pi t / 2) - 1 + t)`` (F5-TTS, which uses -1); 0 spaces them evenly.
    """
    if steps < 1:
        raise ValueError(f"a solver needs at least one step, not {steps}")
    t = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
    swayed = t + sway * (torch.cos(math.pi / 2 * t) - 1 + t)
    swayed[0], swayed[-1] = 0.0, 1.0
    return swayed


def integrate(
    velocity_fn: VelocityField,
    noise: Tensor,
    *,
    method: Method = "euler",
    steps: int = 25,
    sway: float = 0.0,
) -> Tensor:
    """Follow a velocity field from noise at t = 0 to data at t = 1.

    Args:
        velocity_fn: ``velocity_fn(t, x)``.
        noise: x at t = 0, any shape.
        method: fixed-step method of torchdiffeq; midpoint asks for two velocities a step.
        steps: of the solver.
        sway: see :func:`solver_times`.

    Returns:
        x at t = 1, of the shape of ``noise``.
    """
    from torchdiffeq import odeint  # type: ignore[import-untyped]

    if method not in ("euler", "midpoint"):
        raise ValueError(f"unknown method {method!r} of the solver; expected euler or midpoint")
    grid = solver_times(steps, sway=sway).to(device=noise.device, dtype=noise.dtype)
    ends = torch.stack((grid[0], grid[-1]))
    options = {"grid_constructor": lambda function, start, times: grid}
    path: Tensor = odeint(velocity_fn, noise, ends, method=method, options=options)
    return path[-1]
