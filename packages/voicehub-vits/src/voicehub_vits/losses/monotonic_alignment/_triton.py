"""The path on CUDA: two kernels, one program an item, no atomics and no barrier.

The first walks forward through the frames with the best sums of all text positions in registers
and leaves one byte a cell, whether the step came from the position before; the second follows
them back. Between two kernels every write is visible, so that nothing hangs on a barrier. Sums are
float64 as on the CPU, one addition a cell, which hides behind the loads: all paths agree.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# Fixed, not tuned at run time: text positions that a program holds, and its warps.
WARPS = {128: 1, 256: 2, 512: 4, 1024: 8, 2048: 16}
MOST_TEXT = max(WARPS)


@triton.jit
def _forward(
    scores,
    text_lengths,
    frame_lengths,
    moved,
    batch_stride,
    text_stride,
    frame_stride,
    most_text,
    most_frames,
    BLOCK: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64)
    text = tl.load(text_lengths + item)
    frames = tl.load(frame_lengths + item)
    sound = (text >= 1) & (text <= most_text) & (frames <= most_frames) & (text <= frames)
    frames = tl.where(sound, frames, 0)
    lanes = tl.arange(0, BLOCK)
    inside = lanes < text
    before = tl.maximum(lanes - 1, 0)
    cells = scores + item * batch_stride + lanes.to(tl.int64) * text_stride
    moves = moved + item * most_frames * most_text + lanes
    # Ahead of the first frame the path stands before the text, at sum 0.
    best = tl.full((BLOCK,), float("-inf"), tl.float64)
    start = tl.where(lanes == 0, 0.0, float("-inf")).to(tl.float64)
    score = tl.load(cells, mask=inside & (frames > 0), other=0.0).to(tl.float64)
    for frame in range(0, frames):
        cells += frame_stride
        following = tl.load(cells, mask=inside & (frame + 1 < frames), other=0.0).to(tl.float64)
        shifted = tl.gather(best, before, 0)
        step = tl.where(lanes == 0, start, shifted)
        start = tl.full((BLOCK,), float("-inf"), tl.float64)
        came = step > best
        total = tl.where(came, step, best) + score
        # Infinities of unlike sign, or NaN: out of the question.
        best = tl.where(total == total, total, float("-inf"))
        tl.store(moves, came.to(tl.int8), mask=inside)
        moves += most_text
        score = following


@triton.jit
def _backtrack(text_lengths, frame_lengths, moved, index, most_text, most_frames):
    item = tl.program_id(0).to(tl.int64)
    text = tl.load(text_lengths + item)
    frames = tl.load(frame_lengths + item)
    sound = (text >= 1) & (text <= most_text) & (frames <= most_frames) & (text <= frames)
    frames = tl.where(sound, frames, 0)
    row = index + item * most_frames
    for frame in range(frames, most_frames):
        tl.store(row + frame, tl.full((), -1, tl.int64))
    position = text - 1
    for back in range(0, frames):
        frame = frames - 1 - back
        tl.store(row + frame, position)
        cell = (item * most_frames + frame) * most_text + position
        came = (tl.load(moved + cell) != 0) | (position == frame)
        position = tl.where(came & (position > 0), position - 1, position)


def maximum_path(
    scores: Tensor,
    text_lengths: Tensor,
    frame_lengths: Tensor,
    forward: Any = _forward,
    backtrack: Any = _backtrack,
) -> Tensor:
    """As :func:`~voicehub_vits.losses.monotonic_alignment.ops.maximum_path`, without checks.

    Args:
        scores, text_lengths, frame_lengths: on the device; text positions at most ``MOST_TEXT``.
        forward, backtrack: the kernels; tests hand in interpreted ones.
    """
    batch, text, frames = scores.shape
    index = torch.empty((batch, frames), dtype=torch.int64, device=scores.device)
    if index.numel() == 0:
        return index
    moved = torch.empty((batch, frames, text), dtype=torch.int8, device=scores.device)
    texts, counts = text_lengths.contiguous(), frame_lengths.contiguous()
    block = next(size for size in WARPS if size >= text)
    forward[(batch,)](
        scores,
        texts,
        counts,
        moved,
        *scores.stride(),
        text,
        frames,
        BLOCK=block,
        num_warps=WARPS[block],
    )
    backtrack[(batch,)](texts, counts, moved, index, text, frames, num_warps=1)
    return index
