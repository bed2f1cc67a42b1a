"""From arrays to tensors, and from tensors of unequal length to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


def as_tensor(audio: NDArray[np.float32]) -> Tensor:
    """Return samples as a tensor; a copy where they are read-only, as those of a cache are."""
    return torch.from_numpy(audio if audio.flags.writeable else audio.copy())


def pad_rows(rows: Sequence[Tensor], value: float = 0.0) -> Tensor:
    """Stack (steps, ...) of unequal length as (B, steps of the longest, ...).

    Args:
        rows: one or more.
        value: what lies behind the steps of a shorter one.
    """
    longest = max(map(len, rows))
    padded = rows[0].new_full((len(rows), longest, *rows[0].shape[1:]), value)
    for row, target in zip(rows, padded, strict=True):
        target[: len(row)] = row
    return padded
