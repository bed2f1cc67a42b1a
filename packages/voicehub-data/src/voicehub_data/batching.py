"""From a :class:`~voicehub_data.config.BatchConfig` to the core's batch plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from voicehub.data.plan import BatchPlan, DurationBucketedPlan, FixedSizePlan
from voicehub_data.config import BatchConfig

if TYPE_CHECKING:
    from voicehub.trainer.arguments import TrainingArguments

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


def training_plan(
    config: BatchConfig,
    training: TrainingArguments,
    durations: Sequence[float],
    ids: Sequence[str],
) -> BatchPlan:
    """The plan of training batches; see :func:`plan_from`.

    ``training.per_device_train_batch_size`` holds where the configuration names neither a size nor
    a cap.
    """
    batches = config.or_size(training.per_device_train_batch_size)
    return plan_from(batches, durations, seed=training.effective_data_seed, ids=ids)


def evaluation_plan(
    durations: Sequence[float],
    max_padded_seconds: float,
    ids: Sequence[str],
    *,
    max_batch_size: int | None = 64,
) -> BatchPlan:
    """Similar durations together, in one order; a row over the cap is a batch of its own.

    Args:
        durations: seconds of every row.
        max_padded_seconds: cap on rows x longest row of every batch.
        ids: names of the rows, for messages.
        max_batch_size: cap on rows.
    """
    return DurationBucketedPlan(
        [min(duration, max_padded_seconds) for duration in durations],
        max_padded_seconds,
        max_batch_size,
        seed=0,
        shuffle=False,
        ids=ids,
    )
