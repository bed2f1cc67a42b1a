"""The definition, as loops over Python floats."""

from __future__ import annotations

from collections.abc import Sequence

Frames = Sequence[Sequence[float]]


def masked_velocity_error(
    prediction: Frames, noise: Frames, data: Frames, mask: Sequence[bool], min_sigma: float = 0.0
) -> tuple[float, list[list[float]]]:
    """Squared error of one item, and its gradient by the prediction.

    Along ``x_t = (1 - (1 - min_sigma) t) noise + t data`` the velocity is
    ``data - (1 - min_sigma) noise`` (Lipman et al. 2023, equation 23).

    Args:
        prediction, noise, data: a row of channels for each frame.
        mask: whether a frame counts.
        min_sigma: what is left of the noise at t = 1.
    """
    error, gradient = 0.0, []
    for own, start, end, valid in zip(prediction, noise, data, mask, strict=True):
        row = []
        for value, x, y in zip(own, start, end, strict=True):
            difference = value - (y - (1.0 - min_sigma) * x) if valid else 0.0
            error += difference * difference
            row.append(2.0 * difference)
        gradient.append(row)
    return error, gradient
