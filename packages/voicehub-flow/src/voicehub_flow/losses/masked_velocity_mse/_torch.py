"""The error in torch operators, one item after another, on any device."""

from __future__ import annotations

import torch
from torch import Tensor


def forward(
    prediction: Tensor, noise: Tensor, data: Tensor, mask: Tensor, min_sigma: float
) -> Tensor:
    """Sum of squares of each item, float32 or, where an input is float64, float64."""
    dtype = wide_dtype(prediction, noise, data)
    # Apple's GPUs have no float64.
    sums = dtype if prediction.device.type == "mps" else torch.float64
    errors = torch.zeros(prediction.shape[0], dtype=sums, device=prediction.device)
    for item in range(prediction.shape[0]):
        difference = _difference(
            prediction[item], noise[item], data[item], mask[item], min_sigma, dtype
        )
        errors[item] = difference.square_().sum(dtype=sums)
    return errors.to(dtype)


def backward(
    upstream: Tensor,
    prediction: Tensor,
    noise: Tensor,
    data: Tensor,
    mask: Tensor,
    min_sigma: float,
) -> Tensor:
    """Gradient by the prediction, in its dtype; contiguous."""
    dtype = wide_dtype(prediction, noise, data)
    gradient = torch.empty_like(prediction, memory_format=torch.contiguous_format)
    for item in range(prediction.shape[0]):
        difference = _difference(
            prediction[item], noise[item], data[item], mask[item], min_sigma, dtype
        )
        gradient[item] = difference.mul_(2.0 * upstream[item]).masked_fill_(
            ~mask[item].unsqueeze(1), 0.0
        )
    return gradient


def wide_dtype(*values: Tensor) -> torch.dtype:
    """float64 where one of them is, else float32."""
    wide = any(value.dtype == torch.float64 for value in values)
    return torch.float64 if wide else torch.float32


def _difference(
    prediction: Tensor,
    noise: Tensor,
    data: Tensor,
    mask: Tensor,
    min_sigma: float,
    dtype: torch.dtype,
) -> Tensor:
    """Prediction minus velocity of one item; 0 where the mask is False, whatever lies there."""
    difference = noise.to(dtype, copy=True).mul_(1.0 - min_sigma)
    difference.sub_(data.to(dtype)).add_(prediction.to(dtype))
    return difference.masked_fill_(~mask.unsqueeze(1), 0.0)
