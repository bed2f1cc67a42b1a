"""Sizes of matrix products whose last bits do not depend on the number of threads."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

BLOCK = 16
"""Matrix products have all sizes padded to multiples of this: BLAS libraries split ragged ones by
the number of threads, and the last bits of the result with them."""


def padded(tensor: Tensor, *dimensions: int, value: float = 0.0) -> Tensor:
    """The tensor with these dimensions extended to multiples of :data:`BLOCK`."""
    pads = [0] * (2 * tensor.ndim)
    for dimension in dimensions:
        pads[2 * (tensor.ndim - 1 - dimension) + 1] = -tensor.shape[dimension] % BLOCK
    return functional.pad(tensor, pads, value=value) if any(pads) else tensor
