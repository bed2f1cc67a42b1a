"""Cutting long recordings into pieces whose frames can be joined."""

from __future__ import annotations

from dataclasses import dataclass

from voicehub.errors import ConfigurationError


@dataclass(frozen=True)
class Piece:
    """Samples ``start`` to ``stop`` of a recording, and which of their frames are kept.

    Attributes:
        start, stop: samples, surroundings included.
        skip: leading frames that belong to the piece before.
        keep: frames after those; None: all that are left.
    """

    start: int
    stop: int
    skip: int
    keep: int | None


def plan_pieces(
    samples: int, *, hop: int, piece: int, context: int, limit: int | None = None
) -> list[Piece]:
    """Cut a recording; together the kept frames are those of the whole.

    Args:
        samples: of the recording.
        hop: samples from one frame to the next.
        piece: samples of a piece, rounded down to whole hops.
        context: samples on both sides that a piece also sees, rounded down to whole hops.
        limit: most samples that one forward sees.

    Raises:
        ConfigurationError: a piece with its surroundings is over the limit, or shorter than a hop.
    """
    step, around = piece // hop * hop, context // hop * hop
    if step < hop:
        raise ConfigurationError(f"a piece of {piece} samples is shorter than one frame ({hop}).")
    if limit is not None and step + 2 * around > limit:
        raise ConfigurationError(
            f"chunk_seconds and twice context_seconds make {step + 2 * around} samples; the "
            f"encoder sees {limit} at most. Lower one of them."
        )
    # A short rest joins the last piece: it may be too short for a frame of its own.
    count = max(1, (samples - around) // step)
    if limit is not None and samples - (count - 1) * step + around > limit:
        count += 1
    pieces = []
    for number in range(count):
        first, last = number * step, number == count - 1
        start = max(0, first - around)
        stop = samples if last else min(samples, first + step + around)
        pieces.append(Piece(start, stop, (first - start) // hop, None if last else step // hop))
    return pieces
