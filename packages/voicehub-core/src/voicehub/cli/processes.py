"""Which of several processes this one is, before and beside a strategy that knows it better."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voicehub.strategies.base import TrainingStrategy
    from voicehub.trainer.arguments import TrainingArguments


def rank() -> int:
    """Number of this process; 0 for one that was started alone."""
    return _number("RANK", "SLURM_PROCID") if is_one_of_several() else 0


def is_one_of_several() -> bool:
    """Whether a launcher started this process together with others."""
    return _number("WORLD_SIZE", "SLURM_NTASKS") > 1


def local_processes(world_size: int) -> int:
    """How many processes of a run are on this machine; all of them where nobody says."""
    return _number("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE") or world_size


def is_primary() -> bool:
    """Whether this process writes shared files; a process started alone always does."""
    return rank() == 0


def was_restarted() -> bool:
    """Whether torchrun has started this run again after one of its processes failed."""
    return _number("TORCHELASTIC_RESTART_COUNT") > 0


def wait_for_all() -> None:
    """Wait for the other processes, where torch.distributed connects them."""
    world = sys.modules.get("voicehub.strategies.world")
    joined = None if world is None else world.joined()
    if joined is not None:
        joined.exchange(None, what="a common point", patient=True)


@contextmanager
def joined_processes(args: TrainingArguments) -> Iterator[TrainingStrategy | None]:
    """Join the other processes of a run for the time of the block.

    Yields None where the run has one process, whose strategy the Trainer makes. What ends the
    block in an error is told to the others. All but the primary process print errors alone.
    """
    if args.strategy == "torch":
        yield None
        return
    from voicehub.strategies.registry import resolve_strategy

    strategy = resolve_strategy(None, args)
    if not strategy.is_primary:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - to the end
    try:
        yield strategy
    except BaseException as error:
        strategy.report_failure(error)
        raise


def _number(*names: str) -> int:
    text = next((os.environ[name] for name in names if os.environ.get(name)), "0")
    return int(text) if text.isdigit() else 0
