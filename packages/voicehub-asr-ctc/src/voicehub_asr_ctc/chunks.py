"""Cutting long recordings into overlapping windows, and joining their frames again."""

from __future__ import annotations

from dataclasses import dataclass

from voicehub.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Chunk:
    """One window of a recording.

    Attributes:
        start, stop: samples.
        first_frame: number, in the whole recording, of the window's first frame.
        keep_from, keep_to: frames of the whole recording that are taken from this window;
            ``keep_to`` None takes all that it has.
    """

    start: int
    stop: int
    first_frame: int
    keep_from: int
    keep_to: int | None


def plan_chunks(samples: int, hop: int, chunk: int, overlap: int) -> list[Chunk]:
    """Cut a recording such that every frame is taken from exactly one window.

    Windows start at multiples of the frame hop, so their frames fall on the recording's own grid;
    of two that overlap, each gives its half of the overlap, where it has seen most around it.

    Args:
        samples: length of the recording.
        hop: samples from one frame to the next.
        chunk: samples of a window; a recording that fits into one is not cut.
        overlap: samples that neighbours share.

    Raises:
        ConfigurationError: windows are no longer than their overlap.
    """
    if samples <= chunk:
        return [Chunk(0, samples, 0, 0, None)]
    step = (chunk - overlap) // hop
    if step < 1:
        raise ConfigurationError(
            f"chunks of {chunk} samples that overlap by {overlap} do not advance by a frame of "
            f"{hop} samples; give longer chunks or a shorter overlap."
        )
    half = overlap // (2 * hop)
    chunks: list[Chunk] = []
    first = 0
    while True:
        start = first * hop
        last = start + chunk >= samples
        keep_from = first + half if first else 0
        keep_to = None if last else first + step + half
        chunks.append(Chunk(start, min(samples, start + chunk), first, keep_from, keep_to))
        if last:
            return chunks
        first += step
