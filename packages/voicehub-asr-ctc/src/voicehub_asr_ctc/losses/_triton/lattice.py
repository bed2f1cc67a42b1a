"""Sums over the paths of one item, from the first frame on or from the last one back.

A program holds all states of an item: the blank before each label, and the label. CTC reads the
same from behind, so that one kernel does both directions: the second program of an item takes
frames and labels in reverse. What it leaves of a frame are *arrivals*, the sums over all ways
there without the frame's own probability; the arrivals of both directions and that probability
make the share of all paths that pass a state (Graves et al. 2006, equation 14).
"""

from __future__ import annotations

import triton
import triton.language as tl

from voicehub_asr_ctc.losses._triton.numbers import (
    LN_2,
    LOW,
    inverse,
    narrowed,
    normalised,
    packed,
    power,
    probability,
    unpacked,
)


@triton.jit
def paths(
    logits,
    peaks,
    shares,
    frame_lengths,
    labels,
    label_lengths,
    arrivals,
    ends,
    losses,
    item_stride,
    frame_stride,
    token_stride,
    most_frames,
    most_labels,
    tokens,
    blank,
    STORE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Likelihood of each item; with STORE the arrivals too, of as many directions as programs.

    ``arrivals`` is (directions, batch, frames, 2, most_labels + 1): labels, then blanks, packed;
    ``ends`` (directions, batch) one over the likelihood, packed, minus infinity where there is no
    path or where lengths or labels do not fit; ``losses`` the logarithm of that, in nats.
    """
    item, reverse = tl.program_id(0).to(tl.int64), tl.program_id(1) == 1
    record = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + item
    lanes = tl.arange(0, BLOCK)
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

    first = tl.where(reverse, frames - 1, 0)
    ahead = tl.where(reverse, -1, 1).to(tl.int64)
    row = logits + item * item_stride + first * frame_stride
    peaks += item * most_frames + first
    shares += item * most_frames + first
    width = most_labels + 1
    arrivals += (record * most_frames + first) * 2 * width
    tokens_of = label * token_stride
    blank_of = blank * token_stride
    before = tl.maximum(lanes - 1, 0)

    # Ahead of the first frame all paths stand at the first blank.
    label_mantissa = tl.zeros((BLOCK,), tl.float64)
    label_exponent = tl.full((BLOCK,), LOW, tl.float64)
    blank_mantissa = tl.where(lanes == 0, 1.0, 0.0).to(tl.float64)
    blank_exponent = tl.where(lanes == 0, 0.0, LOW).to(tl.float64)
    logit = tl.load(row + tokens_of, mask=own & (frames > 0), other=0.0)
    blank_logit = tl.load(row + blank_of, mask=frames > 0, other=0.0)
    for step in range(0, frames):
        more = step + 1 < frames
        row += ahead * frame_stride
        next_logit = tl.load(row + tokens_of, mask=own & more, other=0.0)
        next_blank_logit = tl.load(row + blank_of, mask=more, other=0.0)
        peak, share = tl.load(peaks).to(tl.float64), tl.load(shares)
        peaks += ahead
        shares += ahead

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
        if STORE:
            tl.store(arrivals + place, packed(label_mantissa, label_exponent), mask=own)
            blank_place = tl.where(reverse, count - lanes, lanes)
            tl.store(
                arrivals + width + blank_place,
                packed(blank_mantissa, blank_exponent),
                mask=lanes <= count,
            )
            arrivals += ahead * 2 * width

        mantissa, exponent = probability(logit.to(tl.float64), peak, share)
        label_mantissa *= mantissa
        label_exponent = tl.where(label_mantissa == 0.0, LOW, label_exponent + exponent)
        mantissa, exponent = probability(blank_logit.to(tl.float64), peak, share)
        blank_mantissa *= mantissa
        blank_exponent = tl.where(blank_mantissa == 0.0, LOW, blank_exponent + exponent)
        logit, blank_logit = next_logit, next_blank_logit

    # What ends in the last label or in the blank behind it.
    last = lanes == count - 1
    label_end = tl.max(tl.where(last, label_exponent, LOW), 0)
    blank_end = tl.max(tl.where(lanes == count, blank_exponent, LOW), 0)
    high = tl.maximum(label_end, blank_end)
    mantissa = tl.sum(tl.where(last, label_mantissa, 0.0), 0) * power(label_end - high)
    mantissa += tl.sum(tl.where(lanes == count, blank_mantissa, 0.0), 0) * power(blank_end - high)
    mantissa, exponent = normalised(tl.where(sound, mantissa, 0.0), high)
    loss = -(tl.log2(mantissa) + exponent) * LN_2
    tl.store(losses + record, tl.where(mantissa == 0.0, float("inf"), loss))
    none = mantissa == 0.0
    mantissa, exponent = normalised(inverse(tl.where(none, 1.0, mantissa)), -exponent)
    tl.store(ends + record, tl.where(none, float("-inf"), packed(mantissa, exponent)))


@triton.jit
def occupancy(
    logits,
    peaks,
    shares,
    frame_lengths,
    sorted_labels,
    order,
    firsts,
    label_lengths,
    arrivals,
    ends,
    upstream,
    gradient,
    item_stride,
    frame_stride,
    token_stride,
    most_labels,
    tokens,
    blank,
    BLOCK: tl.constexpr,
):
    """Gradient of the target's tokens and of the blank: probability minus share of the paths.

    Labels of one token lie next to each other in ``sorted_labels``; ``order`` says where each was,
    ``firsts`` where its token's labels begin. One lane writes a token, so that no order of sums
    is left to chance.
    """
    item, frame = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    most_frames = tl.num_programs(1)
    place = item * most_frames + frame
    end = tl.load(ends + item)
    alive = (end != float("-inf")) & (frame < tl.load(frame_lengths + item))
    count = tl.where(alive, tl.load(label_lengths + item), 0)
    scale, scale_exponent = unpacked(end)
    peak, share_of_peak = tl.load(peaks + place).to(tl.float64), tl.load(shares + place)
    factor = tl.load(upstream + item)
    row = logits + item * item_stride + frame * frame_stride
    width = most_labels + 1
    ahead = arrivals + place * 2 * width
    back = ahead + tl.num_programs(0).to(tl.int64) * most_frames * 2 * width
    to = gradient + place * tokens
    lanes = tl.arange(0, BLOCK)

    own = lanes < count
    listed = item * most_labels + lanes
    label = tl.load(sorted_labels + listed, mask=own, other=blank)
    following = tl.load(sorted_labels + listed + 1, mask=lanes + 1 < count, other=blank)
    was = tl.load(order + listed, mask=own, other=0)
    first = tl.load(firsts + listed, mask=own, other=0)
    mantissa, exponent = probability(
        tl.load(row + label * token_stride, mask=own, other=0.0).to(tl.float64), peak, share_of_peak
    )
    one, one_exponent = unpacked(tl.load(ahead + was, mask=own, other=float("-inf")))
    two, two_exponent = unpacked(tl.load(back + was, mask=own, other=float("-inf")))
    share = one * two * mantissa * scale
    share *= power(one_exponent + two_exponent + exponent + scale_exponent)
    sums = tl.cumsum(tl.where(own, share, 0.0), 0)
    ahead_of = tl.gather(sums, tl.maximum(first - 1, 0).to(tl.int32), 0)
    passing = sums - tl.where(first > 0, ahead_of, 0.0)
    found = factor * (mantissa * power(exponent) - passing)
    tl.store(to + label, narrowed(found, gradient), mask=own & (label != following))

    own = lanes < tl.where(alive, count + 1, 0)
    mantissa, exponent = probability(
        tl.load(row + blank * token_stride, mask=alive, other=0.0).to(tl.float64),
        peak,
        share_of_peak,
    )
    one, one_exponent = unpacked(tl.load(ahead + width + lanes, mask=own, other=float("-inf")))
    two, two_exponent = unpacked(tl.load(back + width + lanes, mask=own, other=float("-inf")))
    share = one * two * mantissa * scale
    share *= power(one_exponent + two_exponent + exponent + scale_exponent)
    passing = tl.sum(tl.where(own, share, 0.0), 0)
    found = factor * (mantissa * power(exponent) - passing)
    tl.store(to + blank, narrowed(found, gradient), mask=alive)
