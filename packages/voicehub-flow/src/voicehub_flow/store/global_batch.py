"""A global batch over any number of processes: reached exactly, or refused; never floored."""

from __future__ import annotations

from typing import NamedTuple

from voicehub.errors import ConfigurationError


class BatchSplit(NamedTuple):
    """Clips of a micro-batch of one process, and micro-batches of an update."""

    per_device: int
    accumulation: int


def split_global_batch(global_batch: int, processes: int, most: int) -> BatchSplit:
    """Split a global batch.

    Args:
        global_batch: clips of one update over all processes.
        processes: how many share it.
        most: clips of a micro-batch that fit into memory.

    Returns:
        The largest micro-batch of at most ``most`` whose multiple is reached exactly.

    Raises:
        ConfigurationError: it is no multiple of the number of processes.
    """
    share, rest = divmod(global_batch, processes)
    if rest or not share:
        lower = global_batch - rest
        near = [str(size) for size in (lower, lower + processes) if size]
        raise ConfigurationError(
            f"data.global_batch_size {global_batch} cannot be shared by {processes} processes: "
            f"take {' or '.join(near)}, or another number of processes."
        )
    size = max(n for n in range(1, min(most, share) + 1) if share % n == 0)
    return BatchSplit(size, share // size)
