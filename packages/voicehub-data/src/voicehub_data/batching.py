"""From a :class:`~voicehub_data.config.BatchConfig` to the core's batch plans."""

from __future__ import annotations

from collections.abc import Sequence

from voicehub.data.plan import BatchPlan, DurationBucketedPlan, FixedSizePlan
from voicehub_data.config import BatchConfig

# Rows a batch where a configuration names neither a size nor a cap.
DEFAULT_BATCH_SIZE = 8


def plan_from(
    config: BatchConfig,
    durations: Sequence[float],
    *,
    seed: int,
    ids: Sequence[str] | None = None,
    shuffle: bool | None = None,
) -> BatchPlan:
    """The plan that a configuration asks for.

    Args:
        config: one of ``batch_size`` and ``max_padded_seconds``, or neither for batches of
            :data:`DEFAULT_BATCH_SIZE`.
        durations: seconds of every row; give ``SpeechDataset.planning_durations``, so that the cap
            also holds for clips that augmentation has made longer.
        seed: data seed.
        ids: names of the rows, for messages.
        shuffle: overrides the configuration's; False for evaluation.

    Raises:
        DataError: a row alone is over the cap; the message names it.
    """
    mixed = config.shuffle if shuffle is None else shuffle
    if config.max_padded_seconds is not None:
        return DurationBucketedPlan(
            durations,
            config.max_padded_seconds,
            config.max_batch_size,
            seed=seed,
            num_buckets=config.num_buckets,
            shuffle=mixed,
            ids=ids,
        )
    size = DEFAULT_BATCH_SIZE if config.batch_size is None else config.batch_size
    return FixedSizePlan(len(durations), size, seed=seed, shuffle=mixed, drop_last=config.drop_last)
