"""Which parts of a recording hold speech, by energy alone.

The rule and its defaults are those of Kaldi's speaker recognition recipes: a frame is speech where
at least 12 % of the frames around it (2 on either side) have a log energy over
5.5 + half the recording's mean log energy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_THRESHOLD, _MEAN_SCALE = 5.5, 0.5
_CONTEXT, _PROPORTION = 2, 0.12
_WINDOW_SECONDS, _HOP_SECONDS = 0.025, 0.01


def speech_frames(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.bool_]:
    """Whether each hop of 10 ms is speech.

    Args:
        audio: mono in [-1, 1], (samples,).
        sample_rate: Hz.

    Returns:
        (hops,), hop n from sample n * hop on; none where the audio is shorter than a window.
    """
    hop, window = round(_HOP_SECONDS * sample_rate), round(_WINDOW_SECONDS * sample_rate)
    count = max(0, 1 + (len(audio) - window) // hop)
    if count == 0:
        return np.zeros(0, dtype=bool)
    # Energies are those of 16-bit samples, which the threshold was chosen for.
    squares = np.concatenate([[0.0], np.cumsum((32768.0 * audio.astype(np.float64)) ** 2)])
    starts = hop * np.arange(count)
    energy = np.log(np.maximum(squares[starts + window] - squares[starts], 1.0))
    loud = np.concatenate([[0], np.cumsum(energy > _THRESHOLD + _MEAN_SCALE * energy.mean())])
    positions = np.arange(count)
    first = np.maximum(positions - _CONTEXT, 0)
    last = np.minimum(positions + _CONTEXT + 1, count)
    speech: NDArray[np.bool_] = (loud[last] - loud[first]) >= _PROPORTION * (last - first)
    return speech


def keep_speech(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """The speech of a recording, joined; empty where there is none."""
    speech = speech_frames(audio, sample_rate)
    hop = round(_HOP_SECONDS * sample_rate)
    mask = np.zeros(len(audio), dtype=bool)
    mask[: len(speech) * hop] = np.repeat(speech, hop)[: len(audio)]
    if len(speech) and speech[-1]:
        mask[len(speech) * hop :] = True  # the end of the last window
    return audio[mask]
