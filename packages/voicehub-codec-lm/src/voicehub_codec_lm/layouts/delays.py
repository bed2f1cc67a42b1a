"""The delay pattern: codebook k of a frame is predicted k steps after the first.

Copet et al. 2023 (MusicGen), section 2.2. A frame's codebooks then depend on each other although
one step predicts all heads at once: when codebook k of frame t is due, codebooks 0 to k - 1 of
that frame have been read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from voicehub.errors import DataError


def delay(codes: Tensor, fill: int) -> Tensor:
    """Move codebook k by k steps to the right.

    Args:
        codes: integers (..., codebooks, frames).
        fill: what stands where no code is.

    Returns:
        (..., codebooks, frames + codebooks - 1), of the same dtype.
    """
    codebooks, frames = codes.shape[-2:]
    moved = codes.new_full((*codes.shape[:-1], delayed_length(frames, codebooks)), fill)
    for book in range(codebooks):
        moved[..., book, book : book + frames] = codes[..., book, :]
    return moved


def undelay(delayed: Tensor) -> Tensor:
    """The inverse of :func:`delay`; what fills its corners is not looked at.

    Args:
        delayed: (..., codebooks, steps).

    Returns:
        (..., codebooks, steps - codebooks + 1).

    Raises:
        DataError: there are fewer steps than any delayed sequence has.
    """
    codebooks, steps = delayed.shape[-2:]
    frames = steps - codebooks + 1
    if frames < 0:
        raise DataError(
            f"{steps} steps are fewer than the {codebooks - 1} that {codebooks} delayed codebooks "
            "have without any frame."
        )
    rows = [delayed[..., book, book : book + frames] for book in range(codebooks)]
    return torch.stack(rows, dim=-2)


def delayed_length(frames: int, codebooks: int) -> int:
    """Steps that so many frames take."""
    return frames + codebooks - 1


def delayed_mask(frames: int, codebooks: int, device: torch.device | None = None) -> Tensor:
    """Where codes stand in a delayed sequence: bool (codebooks, steps)."""
    ones = torch.ones(codebooks, frames, dtype=torch.long, device=device)
    return delay(ones, 0).bool()
