"""The compiled path on the CPU."""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from voicehub.kernels import CLibrary

_ARGUMENTS = (c_void_p, *[c_int64] * 6, *[c_void_p] * 3)
LIBRARY = CLibrary(
    "vits_maximum_path",
    Path(__file__).with_name("maximum_path.c"),
    {"maximum_path_float32": _ARGUMENTS, "maximum_path_float64": _ARGUMENTS},
)


def maximum_path(scores: Tensor, text_lengths: Tensor, frame_lengths: Tensor) -> Tensor:
    """As :func:`~voicehub_vits.losses.monotonic_alignment.ops.maximum_path`, without checks.

    float16 and bfloat16 scores are widened first; strides of the others are read as they are.

    Raises:
        MemoryError: no room for one byte a cell of the largest item.
    """
    wide = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
    batch, text, frames = wide.shape
    texts, counts = text_lengths.contiguous(), frame_lengths.contiguous()
    index = torch.empty((batch, frames), dtype=torch.int64)
    code = LIBRARY.function(f"maximum_path_{str(wide.dtype).removeprefix('torch.')}")(
        wide.data_ptr(),
        *wide.stride(),
        batch,
        text,
        frames,
        texts.data_ptr(),
        counts.data_ptr(),
        index.data_ptr(),
    )
    if code:
        raise MemoryError(f"maximum_path: no memory for {text} text positions x {frames} frames")
    return index
