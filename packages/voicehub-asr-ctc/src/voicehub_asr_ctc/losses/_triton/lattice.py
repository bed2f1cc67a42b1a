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
    narrowed,
    packed,
    power,
    probability,
    unpacked,
)
from voicehub_asr_ctc.losses._triton.recurrence import (
    arrived,
    ended,
    started,
    target,
    times_probability,
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
    lengths = (frame_lengths, label_lengths, most_frames, most_labels)
    sound, frames, count, place, label, skip = target(
        item, reverse, lanes, lengths, labels, tokens, blank
    )
    own = lanes < count
    first = tl.where(reverse, frames - 1, 0)
    ahead = tl.where(reverse, -1, 1).to(tl.int64)
    row = logits + item * item_stride + first * frame_stride
    peaks += item * most_frames + first
    shares += item * most_frames + first
    width = most_labels + 1
    arrivals += (record * most_frames + first) * 2 * width
    tokens_of = label * token_stride
    blank_of = tl.full((), blank, tl.int64) * token_stride

    label_mantissa, label_exponent, blank_mantissa, blank_exponent = started(lanes)
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

        label_mantissa, label_exponent, blank_mantissa, blank_exponent = arrived(
            label_mantissa, label_exponent, blank_mantissa, blank_exponent, own, skip, lanes
        )
        if STORE:
            tl.store(arrivals + place, packed(label_mantissa, label_exponent), mask=own)
            blank_place = tl.where(reverse, count - lanes, lanes)
            tl.store(
                arrivals + width + blank_place,
                packed(blank_mantissa, blank_exponent),
                mask=lanes <= count,
            )
            arrivals += ahead * 2 * width

        label_mantissa, label_exponent = times_probability(
            label_mantissa, label_exponent, logit, peak, share
        )
        blank_mantissa, blank_exponent = times_probability(
            blank_mantissa, blank_exponent, blank_logit, peak, share
        )
        logit, blank_logit = next_logit, next_blank_logit

    loss, end = ended(
        label_mantissa, label_exponent, blank_mantissa, blank_exponent, count, lanes, sound
    )
    tl.store(losses + record, loss)
    tl.store(ends + record, end)


@triton.jit
def passing(ahead, back, own, mantissa, exponent, scale, scale_exponent):
    """Share of all paths that pass each state, whose token has this mantissa and exponent."""
    one, one_exponent = unpacked(tl.load(ahead, mask=own, other=float("-inf")))
    two, two_exponent = unpacked(tl.load(back, mask=own, other=float("-inf")))
    share = one * two * mantissa * scale
    share *= power(one_exponent + two_exponent + exponent + scale_exponent)
    return tl.where(own, share, 0.0)


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
    item, frame = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64)
    most_frames = tl.num_programs(0)
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
    back = ahead + tl.num_programs(1).to(tl.int64) * most_frames * 2 * width
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
    share = passing(ahead + was, back + was, own, mantissa, exponent, scale, scale_exponent)
    sums = tl.cumsum(share, 0)
    ahead_of = tl.gather(sums, tl.maximum(first - 1, 0).to(tl.int32), 0)
    share = sums - tl.where(first > 0, ahead_of, 0.0)
    found = factor * (mantissa * power(exponent) - share)
    tl.store(to + label, narrowed(found, gradient), mask=own & (label != following))

    own = lanes < tl.where(alive, count + 1, 0)
    mantissa, exponent = probability(
        tl.load(row + tl.full((), blank, tl.int64) * token_stride, mask=alive, other=0.0).to(
            tl.float64
        ),
        peak,
        share_of_peak,
    )
    ahead, back = ahead + width + lanes, back + width + lanes
    share = tl.sum(passing(ahead, back, own, mantissa, exponent, scale, scale_exponent), 0)
    found = factor * (mantissa * power(exponent) - share)
    tl.store(to + blank, narrowed(found, gradient), mask=alive)
