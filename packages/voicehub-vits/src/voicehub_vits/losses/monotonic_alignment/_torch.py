"""The path in torch operators: one step a frame over the whole batch, on any device."""

from __future__ import annotations

import torch
from torch import Tensor


def maximum_path(scores: Tensor, text_lengths: Tensor, frame_lengths: Tensor) -> Tensor:
    """As :func:`~voicehub_vits.losses.monotonic_alignment.ops.maximum_path`, without checks.

    Sums are float64; float32 on Apple's GPUs, which have no more.
    """
    batch, text, frames = scores.shape
    device = scores.device
    sound = sound_lengths(scores, text_lengths, frame_lengths)
    if frames == 0 or text == 0:
        return torch.full((batch, frames), -1, dtype=torch.int64, device=device)
    wide = torch.float32 if device.type == "mps" else torch.float64
    rows = scores.detach().permute(2, 0, 1).to(wide)
    best = rows.new_full((batch, text), -torch.inf)
    moved = torch.zeros((frames, batch, text), dtype=torch.bool, device=device)
    for frame in range(frames):
        # Ahead of the first frame the path stands before the text, at sum 0.
        start = best.new_full((batch, 1), -torch.inf if frame else 0.0)
        step = torch.cat([start, best[:, :-1]], dim=1)
        torch.gt(step, best, out=moved[frame])
        best = torch.maximum(step, best) + rows[frame]
        # Two infinities of unlike sign, or NaN: out of the question.
        best.masked_fill_(best.isnan(), -torch.inf)
    return _backtrack(moved, text_lengths, frame_lengths, sound)


def sound_lengths(scores: Tensor, text_lengths: Tensor, frame_lengths: Tensor) -> Tensor:
    """bool (batch,): 1 <= text <= frames, both within the tensor."""
    _, text, frames = scores.shape
    sound = (text_lengths >= 1) & (text_lengths <= text) & (frame_lengths <= frames)
    return sound & (text_lengths <= frame_lengths)


def _backtrack(moved: Tensor, text_lengths: Tensor, frame_lengths: Tensor, sound: Tensor) -> Tensor:
    frames, batch, _ = moved.shape
    index = torch.full((batch, frames), -1, dtype=torch.int64, device=moved.device)
    last = (text_lengths - 1).masked_fill(~sound, 0)
    position = last
    for frame in reversed(range(frames)):
        inside = sound & (frame < frame_lengths)
        index[:, frame] = position.masked_fill(~inside, -1)
        came = moved[frame].gather(1, position[:, None])[:, 0] | (position == frame)
        position = torch.where(inside, position - (came & (position > 0)).long(), last)
    return index
