"""Losses are computed in float32 at least, whatever the forward pass computed in."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(values: Tensor) -> Tensor:
    """float64 as it is, anything narrower as float32; gradients keep the original dtype."""
    return values if values.dtype == torch.float64 else values.float()
