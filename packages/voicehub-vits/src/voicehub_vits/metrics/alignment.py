"""What an alignment looks like in figures: a collapsed one is seen before it is heard."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from voicehub.errors import DataError


@dataclass(frozen=True)
class AlignmentFigures:
    """Figures of one or more utterances.

    Attributes:
        frames_per_position: frames over text positions.
        single_share: share of text positions with exactly one frame. Near 1 means that the path
            rushes through the text and waits somewhere.
        longest_share: mean over utterances of the longest position's frames over all frames. Near
            1 means that one position holds the whole utterance.
        off_diagonal: mean over frames of the distance between the path and the straight line from
            corner to corner, in text lengths: 0 on the line, at most 1.
    """

    frames_per_position: float
    single_share: float
    longest_share: float
    off_diagonal: float


def alignment_figures(index: Tensor, text_lengths: Tensor) -> AlignmentFigures:
    """Figures of the paths that ``maximum_path`` returns.

    Args:
        index: int64 (batch, frames), text position of each frame, -1 in padding.
        text_lengths: int64 (batch,), at least 1.

    Raises:
        DataError: the shapes do not fit, or an utterance has no path.
    """
    if index.dim() != 2 or text_lengths.shape != index.shape[:1]:
        raise DataError(
            "alignment_figures: expected paths (batch, frames) and lengths (batch,), got "
            f"{tuple(index.shape)} and {tuple(text_lengths.shape)}."
        )
    inside = index >= 0
    frames = inside.sum(1)
    if bool((frames == 0).any()) or not len(index):
        raise DataError("alignment_figures: an utterance has no path: its row holds -1 alone.")
    durations = position_frames(index, int(text_lengths.max()))
    spoken = torch.arange(durations.shape[1], device=index.device) < text_lengths[:, None]
    line = (torch.arange(index.shape[1], device=index.device) + 0.5) / frames[:, None]
    path = (index + 0.5) / text_lengths[:, None]
    away = (path - line).abs().masked_fill(~inside, 0.0)
    return AlignmentFigures(
        frames_per_position=float(frames.sum() / text_lengths.sum()),
        single_share=float(((durations == 1) & spoken).sum() / spoken.sum()),
        longest_share=float((durations.amax(1) / frames).mean()),
        off_diagonal=float(away.sum() / frames.sum()),
    )


def position_frames(index: Tensor, text: int) -> Tensor:
    """Frames of each text position on a path.

    Args:
        index: int64 (batch, frames), text position of each frame, -1 in padding.
        text: text positions, T.

    Returns:
        int64 (batch, text); rows add up to each utterance's frames.
    """
    counts = torch.zeros((len(index), text), dtype=torch.int64, device=index.device)
    return counts.scatter_add_(1, index.clamp(min=0), (index >= 0).long())
