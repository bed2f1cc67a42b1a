"""The error on CUDA: a program sums a few frames, no atomics and no barrier.

Sums of the programs are float64 and added up in a fixed order, so that equal inputs give equal
bits. Channels of any stride are read where they lie.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from voicehub_flow.losses.masked_velocity_mse import _torch

# Fixed, not tuned at run time: channels that a program reads at once, and in how many frames.
TILES = {32: 16, 128: 4}
WARPS = 4


@triton.jit
def _difference(
    prediction,
    noise,
    data,
    prediction_channel,
    noise_channel,
    data_channel,
    share,
    columns,
    valid,
    DOUBLE: tl.constexpr,
):
    """Prediction minus velocity of a tile; 0 where nothing is valid."""
    own = tl.load(prediction + columns * prediction_channel, mask=valid, other=0.0)
    start = tl.load(noise + columns * noise_channel, mask=valid, other=0.0)
    end = tl.load(data + columns * data_channel, mask=valid, other=0.0)
    wide = tl.float64 if DOUBLE else tl.float32
    return own.to(wide) - (end.to(wide) - share.to(wide) * start.to(wide))


@triton.jit
def _forward(
    prediction,
    noise,
    data,
    mask,
    shares,
    partial,
    prediction_item,
    prediction_frame,
    prediction_channel,
    noise_item,
    noise_frame,
    noise_channel,
    data_item,
    data_frame,
    data_channel,
    frames,
    channels,
    DOUBLE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    item = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid = tl.load(mask + item * frames + rows, mask=rows < frames, other=0) != 0
    share = tl.load(shares)
    prediction += item * prediction_item + rows[:, None] * prediction_frame
    noise += item * noise_item + rows[:, None] * noise_frame
    data += item * data_item + rows[:, None] * data_frame
    total = tl.zeros((ROWS, COLUMNS), tl.float64 if DOUBLE else tl.float32)
    for first in range(0, channels, COLUMNS):
        columns = (first + tl.arange(0, COLUMNS)).to(tl.int64)[None, :]
        difference = _difference(
            prediction,
            noise,
            data,
            prediction_channel,
            noise_channel,
            data_channel,
            share,
            columns,
            valid[:, None] & (columns < channels),
            DOUBLE,
        )
        total += difference * difference
    tl.store(
        partial + item * tl.num_programs(0) + tl.program_id(0),
        tl.sum(tl.sum(total.to(tl.float64), 1), 0),
    )


@triton.jit
def _backward(
    prediction,
    noise,
    data,
    mask,
    shares,
    upstream,
    gradient,
    prediction_item,
    prediction_frame,
    prediction_channel,
    noise_item,
    noise_frame,
    noise_channel,
    data_item,
    data_frame,
    data_channel,
    frames,
    channels,
    DOUBLE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    item = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < frames
    valid = tl.load(mask + item * frames + rows, mask=inside, other=0) != 0
    share = tl.load(shares)
    slope = 2.0 * tl.load(upstream + item)
    prediction += item * prediction_item + rows[:, None] * prediction_frame
    noise += item * noise_item + rows[:, None] * noise_frame
    data += item * data_item + rows[:, None] * data_frame
    gradient += (item * frames + rows[:, None]) * channels
    for first in range(0, channels, COLUMNS):
        columns = (first + tl.arange(0, COLUMNS)).to(tl.int64)[None, :]
        difference = _difference(
            prediction,
            noise,
            data,
            prediction_channel,
            noise_channel,
            data_channel,
            share,
            columns,
            valid[:, None] & (columns < channels),
            DOUBLE,
        )
        # An upstream that is not finite leaves the frames without a mask at 0.
        found = tl.where(valid[:, None], slope.to(difference.dtype) * difference, 0.0)
        tl.store(
            gradient + columns,
            found.to(gradient.dtype.element_ty),
            mask=inside[:, None] & (columns < channels),
        )


def forward(
    prediction: Tensor,
    noise: Tensor,
    data: Tensor,
    mask: Tensor,
    min_sigma: float,
    kernel: Any = _forward,
) -> Tensor:
    """Sum of squares of each item, float32 or, where an input is float64, float64.

    Args:
        prediction, noise, data, mask, min_sigma: as in ``ops.masked_velocity_error``.
        kernel: tests hand in an interpreted one.
    """
    noise, data, dtype = _alike(prediction, noise, data)
    batch, frames, channels = prediction.shape
    if prediction.numel() == 0:
        return torch.zeros(batch, dtype=dtype, device=prediction.device)
    tile = _tile(channels, dtype)
    parts = triton.cdiv(frames, tile["ROWS"])
    partial = torch.empty((batch, parts), dtype=torch.float64, device=prediction.device)
    kernel[(parts, batch)](
        prediction,
        noise,
        data,
        mask.contiguous().view(torch.uint8),
        _share(prediction, min_sigma),
        partial,
        *prediction.stride(),
        *noise.stride(),
        *data.stride(),
        frames,
        channels,
        **tile,
    )
    return partial.sum(1).to(dtype)


def backward(
    upstream: Tensor,
    prediction: Tensor,
    noise: Tensor,
    data: Tensor,
    mask: Tensor,
    min_sigma: float,
    kernel: Any = _backward,
) -> Tensor:
    """Gradient by the prediction, in its dtype; contiguous."""
    noise, data, dtype = _alike(prediction, noise, data)
    batch, frames, channels = prediction.shape
    gradient = torch.empty_like(prediction, memory_format=torch.contiguous_format)
    if prediction.numel() == 0:
        return gradient
    tile = _tile(channels, dtype)
    kernel[(triton.cdiv(frames, tile["ROWS"]), batch)](
        prediction,
        noise,
        data,
        mask.contiguous().view(torch.uint8),
        _share(prediction, min_sigma),
        upstream.to(torch.float64).contiguous(),
        gradient,
        *prediction.stride(),
        *noise.stride(),
        *data.stride(),
        frames,
        channels,
        **tile,
    )
    return gradient


def _alike(prediction: Tensor, noise: Tensor, data: Tensor) -> tuple[Tensor, Tensor, torch.dtype]:
    """Noise and data in one dtype, and that of the differences: it keeps the binaries few."""
    dtype = _torch.wide_dtype(prediction, noise, data)
    if noise.dtype != data.dtype:
        noise, data = noise.to(dtype), data.to(dtype)
    return noise, data, dtype


def _share(prediction: Tensor, min_sigma: float) -> Tensor:
    """1 - min_sigma in float64, which a number in a launch would not keep."""
    return torch.full((), 1.0 - min_sigma, dtype=torch.float64, device=prediction.device)


def _tile(channels: int, dtype: torch.dtype) -> dict[str, Any]:
    columns = next((size for size in TILES if size >= channels), max(TILES))
    double = dtype == torch.float64
    return {"DOUBLE": double, "ROWS": TILES[columns], "COLUMNS": columns, "num_warps": WARPS}
