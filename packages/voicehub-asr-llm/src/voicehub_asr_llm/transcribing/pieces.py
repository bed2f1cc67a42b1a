"""Long recordings in pieces that are cut where it is quiet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A cut lies in the last so much of a piece, at the quietest so many seconds.
_SEARCHED, _WINDOW = 0.3, 0.05


def cut_at_quiet_places(
    audio: NDArray[np.float32], rate: int, seconds: float
) -> list[NDArray[np.float32]]:
    """Cut audio (samples,) into pieces of at most ``seconds``, which together are the audio.

    Args:
        audio: mono.
        rate: Hz.
        seconds: longest piece.
    """
    longest = int(seconds * rate)
    pieces = []
    while len(audio) > longest:
        cut = _quietest(audio[:longest], rate)
        pieces.append(audio[:cut])
        audio = audio[cut:]
    pieces.append(audio)
    return pieces


def _quietest(audio: NDArray[np.float32], rate: int) -> int:
    """Where in the last part of a piece its power is least."""
    window = max(1, int(_WINDOW * rate))
    first = int((1 - _SEARCHED) * len(audio))
    power = np.cumsum(np.square(audio[first:], dtype=np.float64))
    if len(power) <= window:
        return len(audio)
    sums = power[window:] - power[:-window]
    return int(first + np.argmin(sums) + window // 2 + 1)
