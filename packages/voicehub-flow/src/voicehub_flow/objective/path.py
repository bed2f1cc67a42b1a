"""The straight path from noise to data and its velocity (Lipman et al. 2023, sec. 4.1)."""

from __future__ import annotations

from torch import Tensor


def interpolate(noise: Tensor, data: Tensor, time: Tensor, min_sigma: float = 0.0) -> Tensor:
    """Return ``x_t = (1 - (1 - min_sigma) t) noise + t data``.

    At t = 0 this is the noise, at t = 1 the data plus ``min_sigma`` times the noise.

    Args:
        noise, data: of one shape (batch, ...).
        time: (batch,), in [0, 1].
        min_sigma: what is left of the noise at t = 1.
    """
    t = time.reshape(-1, *(1,) * (data.ndim - 1)).to(data.dtype)
    return (1 - (1 - min_sigma) * t) * noise + t * data


def velocity(noise: Tensor, data: Tensor, min_sigma: float = 0.0) -> Tensor:
    """Return ``d x_t / dt = data - (1 - min_sigma) noise``, the same at every t."""
    return data - (1 - min_sigma) * noise
