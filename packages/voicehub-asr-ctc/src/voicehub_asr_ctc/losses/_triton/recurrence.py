"""What ``lattice.paths`` does: read a target, take a frame's step, say how the last frame ended.

States are two vectors, the labels and the blanks before them, each a mantissa with an exponent
(``numbers``). Lane i is label i and the blank before it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from voicehub_asr_ctc.losses._triton.numbers import (
    LN_2,
    LOW,
    inverse,
    normalised,
    packed,
    power,
    probability,
)


@triton.jit
def target(item, reverse, lanes, lengths, labels, tokens, blank):
    """Whether lengths and labels fit, how many frames and labels, and of each lane its label.

    An item that does not fit has no frame. ``place`` is where a lane's label stands in the row,
    from behind where ``reverse``; ``skip`` whether it can follow the label before without a blank.
    """
    frame_lengths, label_lengths, most_frames, most_labels = lengths
    count, frames = tl.load(label_lengths + item), tl.load(frame_lengths + item)
    sound = (count >= 0) & (count <= most_labels) & (frames >= 0) & (frames <= most_frames)
    count = tl.where(sound, count, 0)
    own = lanes < count
    place = tl.where(reverse, count - 1 - lanes, lanes)
    label = tl.load(labels + item * most_labels + place, mask=own, other=blank)
    behind = tl.where(reverse, place + 1, place - 1)
    other = tl.load(labels + item * most_labels + behind, mask=own & (lanes > 0), other=blank)
    wrong = own & ((label < 0) | (label >= tokens) | (label == blank))
    sound = sound & (tl.sum(wrong.to(tl.int32), 0) == 0)
    frames = tl.where(sound, frames, 0)
    skip = own & (lanes > 0) & (label != other)
    return sound, frames, count, place, label, skip


@triton.jit
def started(lanes):
    """Ahead of the first frame all paths stand at the first blank."""
    zeros = tl.zeros(lanes.shape, tl.float64)
    blank_mantissa = tl.where(lanes == 0, 1.0, 0.0).to(tl.float64)
    blank_exponent = tl.where(lanes == 0, 0.0, LOW).to(tl.float64)
    return zeros, zeros + LOW, blank_mantissa, blank_exponent


@triton.jit
def arrived(label_mantissa, label_exponent, blank_mantissa, blank_exponent, own, skip, lanes):
    """Sums over all ways into each state from the frame before.

    A label is reached from itself, from the blank before it, and where ``skip`` from the label
    before that; a blank from itself and from the label before it.
    """
    before = tl.maximum(lanes - 1, 0)
    from_mantissa = tl.where(lanes > 0, tl.gather(label_mantissa, before, 0), 0.0)
    from_exponent = tl.where(lanes > 0, tl.gather(label_exponent, before, 0), LOW)
    skip_exponent = tl.where(skip, from_exponent, LOW)
    high = tl.maximum(tl.maximum(label_exponent, blank_exponent), skip_exponent)
    mantissa = label_mantissa * power(label_exponent - high)
    mantissa += blank_mantissa * power(blank_exponent - high)
    mantissa += tl.where(skip, from_mantissa * power(skip_exponent - high), 0.0)
    label_mantissa, label_exponent = normalised(tl.where(own, mantissa, 0.0), high)
    high = tl.maximum(blank_exponent, from_exponent)
    mantissa = blank_mantissa * power(blank_exponent - high)
    mantissa += from_mantissa * power(from_exponent - high)
    blank_mantissa, blank_exponent = normalised(mantissa, high)
    return label_mantissa, label_exponent, blank_mantissa, blank_exponent


@triton.jit
def times_probability(mantissa, exponent, logit, peak, share):
    """States times the probability of their token in this frame."""
    own_mantissa, own_exponent = probability(logit.to(tl.float64), peak, share)
    mantissa *= own_mantissa
    return mantissa, tl.where(mantissa == 0.0, LOW, exponent + own_exponent)


@triton.jit
def ended(label_mantissa, label_exponent, blank_mantissa, blank_exponent, count, lanes, sound):
    """What ends in the last label or in the blank behind it: its loss in nats, and one over it.

    The second is packed, minus infinity where no path ends or the item does not fit.
    """
    last = lanes == count - 1
    label_end = tl.max(tl.where(last, label_exponent, LOW), 0)
    blank_end = tl.max(tl.where(lanes == count, blank_exponent, LOW), 0)
    high = tl.maximum(label_end, blank_end)
    mantissa = tl.sum(tl.where(last, label_mantissa, 0.0), 0) * power(label_end - high)
    mantissa += tl.sum(tl.where(lanes == count, blank_mantissa, 0.0), 0) * power(blank_end - high)
    mantissa, exponent = normalised(tl.where(sound, mantissa, 0.0), high)
    loss = -(tl.log2(mantissa) + exponent) * LN_2
    none = mantissa == 0.0
    mantissa, exponent = normalised(inverse(tl.where(none, 1.0, mantissa)), -exponent)
    end = tl.where(none, float("-inf"), packed(mantissa, exponent))
    return tl.where(none, float("inf"), loss), end
