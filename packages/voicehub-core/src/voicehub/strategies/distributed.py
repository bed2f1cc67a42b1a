"""What strategies with several processes share: one world, joint decisions, one who speaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from voicehub.errors import ConfigurationError
from voicehub.strategies.single import SingleProcessStrategy
from voicehub.strategies.world import World, join_world

if TYPE_CHECKING:
    from voicehub.trainer.arguments import TrainingArguments

ResultT = TypeVar("ResultT")

#: Bytes after which a message to the other ranks is full.
_MESSAGE = 64 << 20


class DistributedStrategy(SingleProcessStrategy):
    """The processes that a launcher started, over torch.distributed.

    The device of a process is that of its local rank.
    """

    def __init__(self, args: TrainingArguments) -> None:
        if args.device not in ("cpu", "cuda"):
            raise ConfigurationError(
                f"The strategy '{self.name}' runs on cuda or cpu, not on '{args.device}'. Set "
                "use_cpu=True."
            )
        self.world: World = join_world(self.name, device=args.device, timeout=args.ddp_timeout)
        self.rank, self.world_size = self.world.rank, self.world.size
        self.local_rank = self.world.local_rank
        super().__init__(args)

    def exchange(self, value: Any, *, what: str = "a decision") -> list[Any]:
        """Values of all ranks, in their order."""
        return self.world.exchange(value, what=what)

    def exchange_later(self, value: Any, *, what: str = "a decision") -> Callable[[], list[Any]]:
        """Send now, and wait for the others in the call returned."""
        return self.world.exchange_later(value, what=what)

    def reduce_sum(self, value: Tensor | float) -> Tensor | float:
        """Sum in the order of ranks, so that all of them get the same bits."""
        return float(sum(self.world.exchange(float(value), what="a sum")))

    def any_rank(self, flag: bool) -> bool:
        """Whether any rank says so."""
        return any(self.world.exchange(bool(flag)))

    def gather_objects(self, value: Any, *, what: str = "the results") -> list[Any]:
        """Objects of all ranks, in their order."""
        return self.world.exchange_objects(value, what=what)

    def barrier(self) -> None:
        """Wait for the others, for hours if one of them works alone."""
        self.world.exchange(None, what="a common point", patient=True)

    def on_primary(self, work: Callable[[], ResultT], *, what: str = "work of rank 0") -> ResultT:
        """Rank 0 works, and all get its JSON result."""
        return self.world.on_primary(work, what=what)

    @contextmanager
    def primary_first(self, what: str = "work of rank 0") -> Iterator[None]:
        """Rank 0 first, then the others."""
        with self.world.primary_first(what):
            yield

    def at_work(self, what: str) -> AbstractContextManager[None]:
        """The others wait for this rank longer than ``ddp_timeout`` meanwhile."""
        return self.world.at_work(what)

    def report_failure(self, error: BaseException) -> None:
        """Let the other ranks know why this one ends."""
        self.world.watch.report(error)

    def close(self) -> None:
        """Leave the process groups."""
        self.world.close()

    def broadcast_from_primary(self, tensors: Sequence[Tensor]) -> None:
        """Give all ranks the tensors of rank 0, in place."""
        kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for tensor in tensors:
            kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor.detach())
        with self.world.explained("tensors of rank 0"), torch.no_grad():
            for alike in kinds.values():
                for some in _messages(alike):
                    _broadcast(some, self.world)


def _messages(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Cut a list such that no part has many bytes more than ``_MESSAGE``."""
    part: list[Tensor] = []
    held = 0
    for tensor in tensors:
        part.append(tensor)
        held += tensor.nbytes
        if held >= _MESSAGE:
            yield part
            part, held = [], 0
    if part:
        yield part


def _broadcast(tensors: Sequence[Tensor], world: World) -> None:
    """Send tensors of one dtype and device in one message."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.broadcast(flat.view(torch.uint8), src=0, group=world.group)
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))
