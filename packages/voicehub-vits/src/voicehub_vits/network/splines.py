"""Monotonic rational-quadratic splines (Durkan et al. 2019), without selecting by mask.

Every element goes through the spline at a value clamped into the interval, and those outside
take the identity: branches cost less than gathering the elements that need none.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

MIN_WIDTH = MIN_HEIGHT = MIN_SLOPE = 1e-3


def rational_quadratic(
    inputs: Tensor, widths: Tensor, heights: Tensor, slopes: Tensor, *, bound: float
) -> tuple[Tensor, Tensor]:
    """Apply the spline elementwise; outside of [-bound, bound] it is the identity.

    Args:
        inputs: float (...).
        widths, heights: unnormalised, (..., bins).
        slopes: unnormalised, of the inner knots, (..., bins - 1); those at the ends are 1.
        bound: half the width of the interval.

    Returns:
        Outputs and log-derivatives, both (...).
    """
    inside = (inputs >= -bound) & (inputs <= bound)
    x = inputs.clamp(-bound, bound)
    knots_x, sizes_x = _knots(widths, MIN_WIDTH, bound)
    knots_y, sizes_y = _knots(heights, MIN_HEIGHT, bound)
    edge = math.log(math.expm1(1.0 - MIN_SLOPE))
    slope = MIN_SLOPE + functional.softplus(functional.pad(slopes, (1, 1), value=edge))
    where = (x[..., None] >= knots_x[..., 1:-1]).sum(-1, keepdim=True)

    def pick(values: Tensor) -> Tensor:
        return values.gather(-1, where)[..., 0]

    width, height = pick(sizes_x), pick(sizes_y)
    left, right = pick(slope[..., :-1]), pick(slope[..., 1:])
    steep = height / width
    t = (x - pick(knots_x[..., :-1])) / width
    mixed = t * (1.0 - t)
    denominator = steep + (left + right - 2.0 * steep) * mixed
    rise = height * (steep * t.square() + left * mixed) / denominator
    outputs = pick(knots_y[..., :-1]) + rise
    derivative = steep.square() * (
        right * t.square() + 2.0 * steep * mixed + left * (1.0 - t).square()
    )
    logs = derivative.log() - 2.0 * denominator.log()
    return torch.where(inside, outputs, inputs), torch.where(inside, logs, torch.zeros_like(logs))


def _knots(unnormalised: Tensor, minimum: float, bound: float) -> tuple[Tensor, Tensor]:
    """Knots (..., bins + 1) from -bound to bound, and the distances between them."""
    bins = unnormalised.shape[-1]
    shares = minimum + (1.0 - minimum * bins) * unnormalised.softmax(-1)
    knots = 2.0 * bound * functional.pad(shares.cumsum(-1)[..., :-1], (1, 1)) - bound
    last = torch.full_like(knots[..., -1:], bound)
    knots = torch.cat([knots[..., :-1], last], dim=-1)
    return knots, knots.diff(dim=-1)
