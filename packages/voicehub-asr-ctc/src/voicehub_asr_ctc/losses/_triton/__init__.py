"""CTC on CUDA: four kernels, no atomics and no barrier.

A pass over the logits finds each frame's highest logit and sum of exponentials; then one program
an item sums over paths (``lattice``, in numbers that never underflow); for the gradient two, from
both ends at the same time. No tensor of log-probabilities is made; the gradient's own memory takes
the softmax, and then the tokens of the target are replaced in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from voicehub_asr_ctc.losses._triton import lattice, rows

# Fixed, not tuned at run time: what a program holds, and its warps.
TOKENS: Mapping[int, int] = {64: 1, 256: 2, 1024: 4}
#: Labels and one more; the path holds at most so many states of each kind.
STATES: Mapping[int, int] = {32: 1, 64: 2, 128: 4, 256: 8, 512: 16, 1024: 16}
MOST_LABELS = max(STATES) - 1
#: Of a thread that holds states. Said aloud, since the assembler otherwise spills a few to fit more
#: programs on a processor than there are items.
MOST_REGISTERS = 128

#: Tests hand in interpreted ones.
KERNELS = SimpleNamespace(
    statistics=rows.statistics,
    softmax=rows.softmax,
    paths=lattice.paths,
    occupancy=lattice.occupancy,
)


def forward(
    logits: Tensor,
    frame_lengths: Tensor,
    labels: Tensor,
    label_lengths: Tensor,
    blank: int,
    kernels: Any = KERNELS,
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses float64 (batch,), and of each frame the highest logit and its probability."""
    batch, frames, tokens = logits.shape
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    device = logits.device
    peaks = torch.empty((batch, frames), dtype=wide, device=device)
    shares = torch.empty((batch, frames), dtype=torch.float64, device=device)
    frame_lengths = frame_lengths.contiguous()
    if peaks.numel():
        kernels.statistics[(frames, batch)](
            logits,
            frame_lengths,
            peaks,
            shares,
            *logits.stride(),
            tokens,
            DOUBLE=wide == torch.float64,
            **_configuration(TOKENS, tokens),
        )
    unused = torch.empty(0, dtype=torch.float64, device=device)
    saved = (peaks, shares, frame_lengths, labels, label_lengths)
    losses, _ = _paths(logits, saved, blank, unused, 1, kernels)
    return losses[0], peaks, shares


def backward(
    upstream: Tensor,
    logits: Tensor,
    frame_lengths: Tensor,
    labels: Tensor,
    label_lengths: Tensor,
    peaks: Tensor,
    shares: Tensor,
    blank: int,
    kernels: Any = KERNELS,
) -> Tensor:
    """Gradient of the logits, in their dtype; ``upstream`` is float64 (batch,)."""
    batch, frames, tokens = logits.shape
    most = labels.shape[1]
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    if gradient.numel() == 0:
        return gradient
    frame_lengths, label_lengths = frame_lengths.contiguous(), label_lengths.contiguous()
    arrivals = torch.empty(
        (2, batch, frames, 2, most + 1), dtype=torch.float64, device=logits.device
    )
    saved = (peaks, shares, frame_lengths, labels, label_lengths)
    _, ends = _paths(logits, saved, blank, arrivals, 2, kernels)
    upstream = upstream.contiguous()
    kernels.softmax[(frames, batch)](
        logits,
        frame_lengths,
        peaks,
        shares,
        ends,
        upstream,
        gradient,
        *logits.stride(),
        tokens,
        DOUBLE=logits.dtype == torch.float64,
        **_configuration(TOKENS, tokens),
    )
    lanes = torch.arange(most, device=labels.device)
    padded = labels.masked_fill(lanes >= label_lengths[:, None], torch.iinfo(torch.int64).max)
    sorted_labels, order = padded.sort(dim=1, stable=True)
    kernels.occupancy[(frames, batch)](
        logits,
        peaks,
        shares,
        frame_lengths,
        sorted_labels,
        order,
        torch.searchsorted(sorted_labels, sorted_labels),
        label_lengths,
        arrivals,
        ends,
        upstream,
        gradient,
        *logits.stride(),
        most,
        tokens,
        blank,
        maxnreg=MOST_REGISTERS,
        **_configuration(STATES, most + 1),
    )
    return gradient


def _paths(
    logits: Tensor,
    saved: tuple[Tensor, ...],
    blank: int,
    arrivals: Tensor,
    directions: int,
    kernels: Any,
) -> tuple[Tensor, Tensor]:
    """Losses and packed likelihoods, float64 (directions, batch)."""
    peaks, shares, frame_lengths, labels, label_lengths = saved
    batch, frames, tokens = logits.shape
    losses = torch.empty((directions, batch), dtype=torch.float64, device=logits.device)
    ends = torch.empty_like(losses)
    if batch:
        kernels.paths[(batch, directions)](
            logits,
            peaks,
            shares,
            frame_lengths,
            labels.contiguous(),
            label_lengths.contiguous(),
            arrivals,
            ends,
            losses,
            *logits.stride(),
            frames,
            labels.shape[1],
            tokens,
            blank,
            STORE=directions == 2,
            maxnreg=MOST_REGISTERS,
            **_configuration(STATES, labels.shape[1] + 1),
        )
    return losses, ends


def _configuration(table: Mapping[int, int], size: int) -> dict[str, int]:
    block = next((block for block in table if block >= size), max(table))
    return {"BLOCK": block, "num_warps": table[block]}
