"""The compiled path on the CPU: loss in one call, gradient in another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voicehub.kernels import CLibrary

_INPUTS = (c_void_p, *[c_int64] * 8, *[c_void_p] * 3)
LIBRARY = CLibrary(
    "asr_ctc",
    Path(__file__).with_name("ctc.c"),
    {
        "ctc_forward_float": (*_INPUTS, *[c_void_p] * 3),
        "ctc_forward_double": (*_INPUTS, *[c_void_p] * 3),
        "ctc_backward_float": (*_INPUTS, *[c_void_p] * 4),
        "ctc_backward_double": (*_INPUTS, *[c_void_p] * 4),
    },
)
#: Below so many logits a second thread costs more than it gives.
_WORTH_A_THREAD = 1 << 17


def forward(
    logits: Tensor, frame_lengths: Tensor, labels: Tensor, label_lengths: Tensor, blank: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses float64 (batch,), and of each frame the highest logit and the sum of exponentials."""
    wide = _wide(logits)
    batch, frames, _ = wide.shape
    losses = torch.empty(batch, dtype=torch.float64)
    peaks = torch.empty((batch, frames), dtype=wide.dtype)
    totals = torch.empty((batch, frames), dtype=torch.float64)
    results = (losses.data_ptr(), peaks.data_ptr(), totals.data_ptr())
    _run("forward", wide, (frame_lengths, labels, label_lengths), blank, results)
    return losses, peaks, totals


def backward(
    upstream: Tensor,
    logits: Tensor,
    frame_lengths: Tensor,
    labels: Tensor,
    label_lengths: Tensor,
    peaks: Tensor,
    totals: Tensor,
    blank: int,
) -> Tensor:
    """Gradient of the logits, in their dtype; ``upstream`` is float64 (batch,)."""
    wide = _wide(logits)
    gradient = torch.empty(wide.shape, dtype=wide.dtype)
    if not gradient.numel():  # its address is none that C may be given
        return gradient.to(logits.dtype)
    factors = upstream.contiguous()
    inputs = (factors.data_ptr(), peaks.data_ptr(), totals.data_ptr(), gradient.data_ptr())
    _run("backward", wide, (frame_lengths, labels, label_lengths), blank, inputs)
    return gradient.to(logits.dtype)


def _wide(logits: Tensor) -> Tensor:
    """float32 or float64, the tokens of a frame next to each other."""
    wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    return wide if wide.stride(2) == 1 else wide.contiguous()


def _run(
    name: str, wide: Tensor, targets: tuple[Tensor, ...], blank: int, results: tuple[int, ...]
) -> None:
    """Call the function on ranges of items, a thread each; items do not depend on one another."""
    frame_lengths, labels, label_lengths = (values.contiguous() for values in targets)
    batch, frames, tokens = wide.shape
    kind = "double" if wide.dtype == torch.float64 else "float"
    function = LIBRARY.function(f"ctc_{name}_{kind}")

    def run(first: int, last: int) -> int:
        code: int = function(
            wide.data_ptr(),
            wide.stride(0),
            wide.stride(1),
            first,
            last,
            frames,
            tokens,
            labels.shape[1],
            blank,
            labels.data_ptr(),
            frame_lengths.data_ptr(),
            label_lengths.data_ptr(),
            *results,
        )
        return code

    if any(_in_threads(run, batch, wide.numel())):
        raise MemoryError(f"ctc: no memory for {frames} frames of {labels.shape[1]} labels")


def _in_threads(run: Callable[[int, int], int], batch: int, work: int) -> list[Any]:
    threads = max(1, min(torch.get_num_threads(), batch, work // _WORTH_A_THREAD))
    if threads == 1:
        return [run(0, batch)]
    bounds = [batch * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, bounds[:-1], bounds[1:]))
