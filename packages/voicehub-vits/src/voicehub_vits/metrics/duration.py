"""How far predicted durations are from those that the alignment found."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from voicehub.errors import DataError


@dataclass(frozen=True)
class DurationErrors:
    """Errors of one or more utterances; add two of them to pool.

    Attributes:
        positions: text positions compared.
        aligned_frames: frames of the alignments.
        absolute_frames: sum over positions of the absolute difference, in frames.
        length_frames: sum over utterances of the absolute difference of their lengths, in frames.
    """

    positions: int = 0
    aligned_frames: float = 0.0
    absolute_frames: float = 0.0
    length_frames: float = 0.0

    @property
    def frames_per_position(self) -> float:
        """Mean absolute error of a position in frames; NaN without positions."""
        return self.absolute_frames / self.positions if self.positions else float("nan")

    @property
    def length_error(self) -> float:
        """Absolute error of the utterances' lengths over their lengths; NaN without frames."""
        return self.length_frames / self.aligned_frames if self.aligned_frames else float("nan")

    def __add__(self, other: DurationErrors) -> DurationErrors:
        return DurationErrors(
            self.positions + other.positions,
            self.aligned_frames + other.aligned_frames,
            self.absolute_frames + other.absolute_frames,
            self.length_frames + other.length_frames,
        )


def duration_errors(predicted: Tensor, aligned: Tensor, mask: Tensor) -> DurationErrors:
    """Compare durations position by position and utterance by utterance.

    Args:
        predicted: (batch, text), frames, not logarithms; they need not be whole.
        aligned: (batch, text), frames of each position on the maximum path.
        mask: (batch, text), bool or 0 and 1; what it leaves out may hold anything.

    Raises:
        DataError: the shapes differ.
    """
    if not predicted.shape == aligned.shape == mask.shape or predicted.dim() != 2:
        raise DataError(
            "duration_errors: expected three tensors (batch, text), got "
            f"{tuple(predicted.shape)}, {tuple(aligned.shape)} and {tuple(mask.shape)}."
        )
    outside = mask == 0
    here = predicted.detach().double().masked_fill(outside, 0.0)
    there = aligned.detach().double().masked_fill(outside, 0.0)
    return DurationErrors(
        positions=int((~outside).sum()),
        aligned_frames=float(there.sum()),
        absolute_frames=float((here - there).abs().sum()),
        length_frames=float((here.sum(1) - there.sum(1)).abs().sum()),
    )
