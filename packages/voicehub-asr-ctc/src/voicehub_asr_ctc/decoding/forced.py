"""The most probable alignment of given labels: where a beam search's tokens lie in time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from voicehub.errors import DataError
from voicehub_asr_ctc.decoding.greedy import best_path_alignment
from voicehub_asr_ctc.decoding.results import Alignment


def minimum_frames(ids: Sequence[int]) -> int:
    """Return the frames that ``ids`` need: one each, and a blank between equal neighbours."""
    repeats = sum(a == b for a, b in pairwise(ids))
    return len(ids) + repeats


def force_align(log_probs: np.ndarray, ids: Sequence[int], blank: int = 0) -> Alignment:
    """Find the best path that collapses to ``ids`` (Viterbi over CTC's state graph).

    Args:
        log_probs: (T, V), log-probabilities.
        ids: Labels without blanks.
        blank: Id of the blank.

    Raises:
        DataError: The labels do not fit into T frames, or no path has a probability above zero.
    """
    scores = np.asarray(log_probs, dtype=np.float64)
    frames = len(scores)
    needed = minimum_frames(ids)
    if needed > frames:
        raise DataError(f"{len(ids)} labels need at least {needed} frames; there are {frames}.")
    if frames == 0:
        return Alignment((), (), (), (), 0.0)
    states = np.full(2 * len(ids) + 1, blank)
    states[1::2] = ids
    steps, score = _viterbi(scores[:, states], states, blank)
    if not np.isfinite(score):
        raise DataError(f"No path with a finite score aligns {len(ids)} labels to the outputs.")
    path = states[steps]
    return best_path_alignment(path, scores[np.arange(frames), path], blank)


def _viterbi(
    emissions: np.ndarray, states: np.ndarray, blank: int
) -> tuple[np.ndarray, np.floating]:
    """Return the best state of each frame and the path's score.

    ``emissions`` is (T, S), ``states`` (S,): blank, label, blank, label, ..., blank.
    """
    frames, size = emissions.shape
    # A label may be entered from the label before it, past the blank, unless they are equal.
    may_skip = np.zeros(size, dtype=bool)
    may_skip[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    best = np.full(size, -np.inf)
    best[:2] = emissions[0, :2]
    steps = np.zeros((frames, size), dtype=np.int8)
    ways = np.full((3, size), -np.inf)
    for t in range(1, frames):
        ways[0] = best
        ways[1, 1:] = best[:-1]
        ways[2, 2:] = np.where(may_skip[2:], best[:-2], -np.inf)
        steps[t] = ways.argmax(0)
        best = ways.max(0) + emissions[t]
    # It ends in the last label or in the blank behind it.
    state = size - 1 if size == 1 or best[-1] >= best[-2] else size - 2
    score = best[state]
    path = np.empty(frames, dtype=np.int64)
    for t in range(frames - 1, -1, -1):
        path[t] = state
        state -= int(steps[t, state])
    return path, score
