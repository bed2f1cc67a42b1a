"""From a sampler's configuration to the batch plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from voicehub.data.plan import BatchPlan, DurationBucketedPlan
from voicehub_data.samplers import ClassWeightedPlan, RandomChunkPlan
from voicehub_xvector.data.hard_prototypes import HardPrototypesPlan
from voicehub_xvector.sampler_config import (
    BucketedConfig,
    ClassWeightedConfig,
    HardPrototypesConfig,
    RandomChunkConfig,
)


def training_plan(
    config: BucketedConfig | RandomChunkConfig | ClassWeightedConfig | HardPrototypesConfig,
    durations: Sequence[float],
    labels: Sequence[int],
    ids: Sequence[str],
    *,
    seed: int,
) -> BatchPlan:
    """Return the plan of training batches.

    Args:
        config: of the sampler.
        durations: the longest that each sample can become, in seconds.
        labels, ids: of the samples.
        seed: data seed.

    Raises:
        DataError: a whole recording alone is over the cap; the message names it.
    """
    if isinstance(config, BucketedConfig):
        return DurationBucketedPlan(
            durations, config.max_padded_seconds, config.max_batch_size, seed=seed,
            num_buckets=config.num_buckets, ids=ids,
        )  # fmt: skip
    caps: Any = (config.chunk_seconds, config.max_padded_seconds, config.max_batch_size)
    if isinstance(config, RandomChunkConfig):
        return RandomChunkPlan(durations, *caps, seed=seed)
    if isinstance(config, HardPrototypesConfig):
        return HardPrototypesPlan(
            durations, labels, *caps, neighbours=config.neighbours,
            per_speaker=config.per_speaker, exponent=config.exponent, seed=seed,
        )  # fmt: skip
    return ClassWeightedPlan(durations, labels, *caps, exponent=config.exponent, seed=seed)
