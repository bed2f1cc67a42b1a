"""What one batch costs beside another, for groups of batches that processes run side by side."""

from __future__ import annotations

from collections.abc import Collection

#: Reading, decoding and labelling one more sample takes as long as so many seconds of padded audio
#: in the model: measured on two cores with a small recogniser (asr-ctc/tiny; least squares over the
#: processor time of its steps: 3.1 ms a padded second, 0.5 ms a sample). Where the model is larger,
#: padded seconds decide by themselves: batches are cut by them, and differ in samples far more.
SECONDS_A_SAMPLE = 0.15


def batch_cost(durations: Collection[float]) -> float:
    """Return the cost of a batch of samples of so many seconds, in seconds of padded audio."""
    return len(durations) * (max(durations) + SECONDS_A_SAMPLE)
