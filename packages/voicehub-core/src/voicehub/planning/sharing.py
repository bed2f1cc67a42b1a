"""What one of several processes holds, from what a lone one holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from voicehub.errors import ConfigurationError
from voicehub.planning.allocations import AVERAGES, BUCKETS, GRADIENTS, OPTIMIZER, WEIGHTS

#: Kinds that FSDP shares out.
SHARED = (WEIGHTS, GRADIENTS, OPTIMIZER, AVERAGES)
GATHERED, WHOLE_GRADIENTS = "gathered weights", "gradients before their sum"


@dataclass(frozen=True)
class Blocks:
    """Sizes in bytes by which FSDP gathers and releases.

    Attributes:
        root: of the parameters that lie in no block: whole from a forward to its backward.
        largest: of the largest block; the present one and the next are whole at a time.
        trainable: of the parameters that train, all of them.
        trainable_root: of those among them that lie in no block.
        trainable_largest: of those of the block that has most of them.
    """

    root: int
    largest: int
    trainable: int
    trainable_root: int
    trainable_largest: int


def on_each_process(
    memory: Mapping[str, int],
    strategy: str,
    processes: int,
    blocks: Blocks,
    *,
    accumulates: bool = False,
) -> dict[str, int]:
    """Return bytes by kind on one of several processes.

    Under ``ddp`` each holds everything: ``memory`` has the messages of gradients already, where
    it is of a rehearsal that sends them. Under ``fsdp`` weights, gradients, optimizer state and
    averages are shared out; whole are the blocks that compute, what lies in no block, and the
    gradients that are not summed yet.

    Args:
        memory: of a lone process.
        strategy: ``torch``, ``ddp``, ``fsdp``, or another one, which is taken to be like ``ddp``.
        processes: how many there are.
        blocks: sizes of the model's parts.
        accumulates: several micro-batches make an update: FSDP sums gradients with the last one,
            and the earlier ones keep theirs whole.

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
        return dict(memory)
    shared = {k: -(-v // processes) if k in SHARED else v for k, v in memory.items()}
    shared.pop(BUCKETS, None)
    gathered = min(blocks.root + 2 * blocks.largest, memory.get(WEIGHTS, 0))
    whole = blocks.trainable_root + blocks.trainable_largest
    if accumulates:
        whole = blocks.trainable
    return {**shared, GATHERED: gathered, WHOLE_GRADIENTS: min(whole, blocks.trainable)}
