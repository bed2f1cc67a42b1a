"""The definition of the CTC loss as loops over logarithms, for tests and for reading."""

from __future__ import annotations

import math
from collections.abc import Sequence

Table = list[list[float]]


def log_sum(*values: float) -> float:
    """Logarithm of the sum of exponentials."""
    high = max(values)
    if high in (-math.inf, math.inf):
        return high
    return high + math.log(sum(math.exp(value - high) for value in values))


def ctc(
    logits: Sequence[Sequence[float]], labels: Sequence[int], blank: int
) -> tuple[float, Table]:
    """Negative log-likelihood of one utterance and its gradient (Graves et al. 2006, section 4).

    Args:
        logits: a row of tokens for each frame.
        labels: without blanks.
        blank: id of the blank.

    Returns:
        Nats, infinite where no alignment exists, with a gradient of 0; and the gradient's table.
    """
    logs = [[value - log_sum(*row) for value in row] for row in logits]
    tokens = [blank]
    for label in labels:
        tokens += [label, blank]
    frames, states = len(logs), len(tokens)
    if not frames:
        return (math.inf if labels else 0.0), []

    def skips(s: int) -> bool:
        return 2 <= s < states and tokens[s] not in (blank, tokens[s - 2])

    ahead = [[-math.inf] * states for _ in range(frames)]
    behind = [[-math.inf] * states for _ in range(frames)]
    for t in range(frames):
        for s in range(states):
            before = [0.0 if t == 0 and s < 2 else -math.inf]
            if t:
                before = [ahead[t - 1][s]]
                before += [ahead[t - 1][s - 1]] if s else []
                before += [ahead[t - 1][s - 2]] if skips(s) else []
            ahead[t][s] = log_sum(*before) + logs[t][tokens[s]]
    for t in reversed(range(frames)):
        for s in range(states):
            after = [0.0 if t == frames - 1 and s >= states - 2 else -math.inf]
            if t < frames - 1:
                nexts = [
                    s,
                    *([s + 1] if s + 1 < states else []),
                    *([s + 2] if skips(s + 2) else []),
                ]
                after = [behind[t + 1][n] + logs[t + 1][tokens[n]] for n in nexts]
            behind[t][s] = log_sum(*after)
    total = log_sum(*ahead[-1][-2:])
    if total == -math.inf:
        return math.inf, [[0.0] * len(row) for row in logits]
    gradient = [[math.exp(value) for value in row] for row in logs]
    for t in range(frames):
        for s in range(states):
            gradient[t][tokens[s]] -= math.exp(ahead[t][s] + behind[t][s] - total)
    return -total, gradient
