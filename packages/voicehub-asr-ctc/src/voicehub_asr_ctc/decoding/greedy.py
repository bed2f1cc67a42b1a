"""Best-path decoding: the most probable token of each frame, repeats merged, blanks removed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from voicehub.errors import DataError
from voicehub_asr_ctc.decoding.results import Alignment


def greedy(
    logits: torch.Tensor,
    lengths: torch.Tensor | Sequence[int] | None = None,
    blank: int = 0,
) -> list[Alignment]:
    """Decode a batch along its best path (Graves et al. 2006, section 3.2).

    Args:
        logits: (B, T, V), scores or log-probabilities; any float type, any device.
        lengths: (B,), valid frames; all T by default. Frames behind them are not read.
        blank: Id of the blank.

    Raises:
        DataError: Shapes do not fit, or a valid frame holds NaN.
    """
    if logits.ndim != 3:
        raise DataError(f"greedy expects logits (B, T, V); got shape {tuple(logits.shape)}.")
    batch, frames, size = logits.shape
    counts = [frames] * batch if lengths is None else [int(length) for length in lengths]
    if len(counts) != batch or any(not 0 <= count <= frames for count in counts):
        raise DataError(f"greedy got lengths {counts} for logits of shape {tuple(logits.shape)}.")
    if not 0 <= blank < size:
        raise DataError(f"The blank id {blank} lies outside the {size} outputs.")
    log_probs = logits.detach().float().log_softmax(-1)
    best, ids = log_probs.max(-1)
    scores, tokens = best.cpu().numpy(), ids.cpu().numpy()
    return [
        best_path_alignment(tokens[i, :count], scores[i, :count], blank, name=f"Utterance {i}")
        for i, count in enumerate(counts)
    ]


def best_path_alignment(
    path: np.ndarray, log_probs: np.ndarray, blank: int, *, name: str = "The utterance"
) -> Alignment:
    """Collapse a frame-by-frame path.

    Args:
        path: (T,), a token id for each frame.
        log_probs: (T,), log-probability of that token there.
        blank: Id of the blank.
        name: Names the utterance in an error.

    Raises:
        DataError: A log-probability is NaN.
    """
    if np.isnan(log_probs).any():
        frame = int(np.isnan(log_probs).argmax())
        raise DataError(f"{name} of the batch has NaN outputs from frame {frame} on.")
    if len(path) == 0:
        return Alignment((), (), (), (), 0.0)
    starts = np.flatnonzero(np.concatenate(([True], path[1:] != path[:-1])))
    ends = np.append(starts[1:], len(path))
    spoken = path[starts] != blank
    means = np.add.reduceat(np.exp(log_probs.astype(np.float64)), starts) / (ends - starts)
    return Alignment(
        ids=tuple(path[starts][spoken].tolist()),
        frames=tuple(starts[spoken].tolist()),
        ends=tuple(ends[spoken].tolist()),
        confidence=tuple(np.minimum(means[spoken], 1.0).tolist()),
        score=float(log_probs.sum(dtype=np.float64)),
    )
