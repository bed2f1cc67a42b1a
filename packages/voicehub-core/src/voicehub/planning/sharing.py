"""What one of several processes holds, from what a lone one holds."""

from __future__ import annotations

from collections.abc import Mapping

from voicehub.errors import ConfigurationError
from voicehub.planning.allocations import AVERAGES, GRADIENTS, OPTIMIZER, WEIGHTS

#: Kinds that FSDP shares out.
_SHARED = (WEIGHTS, GRADIENTS, OPTIMIZER, AVERAGES)
BUCKETS, GATHERED = "gradient buckets", "gathered weights"


def on_each_process(
    memory: Mapping[str, int], strategy: str, processes: int, *, trainable: int, largest: int
) -> dict[str, int]:
    """Return bytes by kind on one of several processes.

    Under ``ddp`` each holds everything, and buckets in which gradients travel. Under ``fsdp``
    weights, gradients, optimizer state and averages are shared out, and the blocks that compute
    are gathered whole: the present one and the next.

    Args:
        memory: of a lone process.
        strategy: ``torch``, ``ddp``, ``fsdp``, or another one, which is taken to be like ``ddp``.
        processes: how many there are.
        trainable: bytes of the parameters that train.
        largest: bytes of the largest block that FSDP gathers at once.

    Raises:
        ConfigurationError: several processes with a strategy for one.
    """
    if processes == 1:
        return dict(memory)
    if strategy == "torch":
        raise ConfigurationError(
            f"training.strategy=torch is for one process; {processes} need ddp or fsdp."
        )
    if strategy != "fsdp":
        return {**memory, BUCKETS: trainable}
    shared = {k: -(-v // processes) if k in _SHARED else v for k, v in memory.items()}
    return {**shared, GATHERED: min(2 * largest, memory.get(WEIGHTS, 0))}
