"""Silence at the ends of a clip, and the level of the speech in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Seconds of a frame whose level is measured, and between two of them.
_FRAME, _STEP = 0.025, 0.010
#: Frames so many dB below the loudest are no speech when its level is measured.
_ACTIVE_DB = 40.0
#: Highest absolute sample that a gain may make.
_CEILING = 0.99


def frame_levels(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float64]:
    """RMS level in dBFS of frames of 25 ms every 10 ms, at least one; silence is -inf.

    Args:
        audio: mono, shape (n,), n > 0.
        sample_rate: Hz.
    """
    size, step = max(1, round(_FRAME * sample_rate)), max(1, round(_STEP * sample_rate))
    power = np.square(audio, dtype=np.float64)
    sums = np.concatenate([[0.0], np.cumsum(power)])
    starts = np.arange(0, max(1, len(audio) - size + 1), step)
    stops = np.minimum(starts + size, len(audio))
    mean = np.maximum(sums[stops] - sums[starts], 0.0) / (stops - starts)
    with np.errstate(divide="ignore"):
        levels: NDArray[np.float64] = 10.0 * np.log10(mean)
    return levels


def trim_silence(
    audio: NDArray[np.float32],
    sample_rate: int,
    *,
    threshold_db: float = 40.0,
    margin: float = 0.05,
) -> NDArray[np.float32]:
    """Cut what lies before the first and behind the last frame of speech.

    Args:
        audio: mono, shape (n,).
        sample_rate: Hz.
        threshold_db: frames this far below the loudest one are silence.
        margin: seconds of silence kept at both ends.

    Returns:
        A view of the audio; all of it where it holds nothing but silence.
    """
    if not len(audio):
        return audio
    levels = frame_levels(audio, sample_rate)
    loudest = levels.max()
    if not np.isfinite(loudest):
        return audio
    active = np.flatnonzero(levels >= loudest - threshold_db)
    kept = round(margin * sample_rate)
    start = active[0] * max(1, round(_STEP * sample_rate)) - kept
    stop = active[-1] * max(1, round(_STEP * sample_rate)) + round(_FRAME * sample_rate) + kept
    return audio[max(0, start) : stop]


def speech_level(audio: NDArray[np.float32], sample_rate: int) -> float:
    """RMS level in dBFS over the frames that hold speech; -inf for silence."""
    levels = frame_levels(audio, sample_rate)
    loudest = levels.max(initial=-np.inf)
    if not np.isfinite(loudest):
        return float("-inf")
    active = levels[levels >= loudest - _ACTIVE_DB]
    return float(10.0 * np.log10(np.mean(10.0 ** (active / 10.0))))


def set_speech_level(
    audio: NDArray[np.float32], sample_rate: int, target_db: float
) -> NDArray[np.float32]:
    """Bring the level of the speech to ``target_db`` dBFS, or as near as no sample clips.

    Silence is returned as it is.
    """
    level = speech_level(audio, sample_rate) if len(audio) else float("-inf")
    if not np.isfinite(level):
        return audio
    gain = 10.0 ** ((target_db - level) / 20.0)
    peak = float(np.abs(audio).max())
    gain = min(gain, _CEILING / peak)
    return (audio * gain).astype(np.float32)
