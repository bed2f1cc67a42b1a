"""What looks at whole rows of logits: a program a frame, no sum across programs."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def statistics(
    logits,
    frame_lengths,
    peaks,
    shares,
    item_stride,
    frame_stride,
    token_stride,
    tokens,
    DOUBLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of each frame the highest logit and its share, one over the sum of exponentials below it.

    A logit that is no number makes the share so; behind an item's frames they are 0 and 1.
    """
    item, frame = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64)
    inside = frame < tl.load(frame_lengths + item)
    count = tl.where(inside, tokens, 0)
    row = logits + item * item_stride + frame * frame_stride
    wide = tl.float64 if DOUBLE else tl.float32
    high = tl.full((BLOCK,), float("-inf"), wide)
    for first in range(0, count, BLOCK):
        lanes = first + tl.arange(0, BLOCK)
        values = tl.load(
            row + lanes.to(tl.int64) * token_stride, mask=lanes < count, other=float("-inf")
        )
        high = tl.maximum(high, values.to(wide))
    peak = tl.where(inside, tl.max(high, 0), 0.0)
    sums = tl.zeros((BLOCK,), wide)
    for first in range(0, count, BLOCK):
        lanes = first + tl.arange(0, BLOCK)
        values = tl.load(
            row + lanes.to(tl.int64) * token_stride, mask=lanes < count, other=float("-inf")
        )
        sums += tl.exp(values.to(wide) - peak)
    place = item * tl.num_programs(0) + frame
    total = tl.where(inside, tl.sum(sums.to(tl.float64), 0), 1.0)
    tl.store(peaks + place, peak)
    tl.store(shares + place, 1.0 / total)


@triton.jit
def softmax(
    logits,
    frame_lengths,
    peaks,
    shares,
    ends,
    upstream,
    gradient,
    item_stride,
    frame_stride,
    token_stride,
    tokens,
    DOUBLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Upstream times the probability of every token; 0 behind an item's frames and without a path.

    ``occupancy`` then replaces the tokens of the target, and the blank.
    """
    item, frame = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64)
    inside = frame < tl.load(frame_lengths + item)
    alive = inside & (tl.load(ends + item) != float("-inf"))
    place = item * tl.num_programs(0) + frame
    wide = tl.float64 if DOUBLE else tl.float32
    peak = tl.load(peaks + place)
    factor = (tl.load(upstream + item) * tl.load(shares + place)).to(wide)
    count = tl.where(alive, tokens, 0)
    row = logits + item * item_stride + frame * frame_stride
    to = gradient + place * tokens
    for first in range(0, tokens, BLOCK):
        lanes = first + tl.arange(0, BLOCK)
        values = tl.load(
            row + lanes.to(tl.int64) * token_stride, mask=lanes < count, other=float("-inf")
        )
        found = tl.where(lanes < count, factor * tl.exp(values.to(wide) - peak), 0.0)
        tl.store(to + lanes, found.to(gradient.dtype.element_ty), mask=lanes < tokens)
