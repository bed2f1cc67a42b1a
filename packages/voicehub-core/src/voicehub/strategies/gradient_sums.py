"""How one message of gradients is added up over the ranks: by messages, or in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from voicehub.strategies.local_link import SHARED, LocalLink
from voicehub.strategies.world import World

#: Sums start at multiples of as many bytes, for vector instructions.
_ALIGNMENT = 64


class PendingSum(Protocol):
    """A message that is under way."""

    def is_ready(self) -> bool:
        """Whether ``take`` need not wait."""
        ...

    def take(self) -> Tensor:
        """Return the sum over all ranks, on every rank the same bits."""
        ...


class GradientSums(Protocol):
    """Adds up messages; all ranks send the same ones in the same order, phase by phase."""

    def begin(self) -> None:
        """A new phase: all sums of the one before were taken."""
        ...

    def send(self, parts: Sequence[Tensor]) -> PendingSum:
        """Send flat tensors of one dtype and device, one after the other, as one message."""
        ...


class MessageSums:
    """By the process group of gradients (nccl, gloo), which works while the backward goes on."""

    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self) -> None:
        """Nothing to prepare."""

    def send(self, parts: Sequence[Tensor]) -> PendingSum:
        """All-reduce."""
        message = torch.cat(list(parts))
        work = dist.all_reduce(message, group=self._world.group, async_op=True)
        return _Message(message, work)


class _Message:
    def __init__(self, message: Tensor, work: Any) -> None:
        self._message, self._work = message, work

    def is_ready(self) -> bool:
        return bool(self._work.is_completed())

    def take(self) -> Tensor:
        self._work.wait()
        return self._message


class SharedMemorySums:
    """Between ranks of one machine: each writes its part where all read it, and adds up them all.

    Every rank adds in the order of ranks. Memory is used in two halves in turn: a rank that begins
    a phase has taken the sums of the one before, so the others had begun that one, and have taken
    the sums of the one before that: of the half that is written to now.

    Args:
        link: connects the ranks.
        limit: seconds to wait for another rank.
    """

    def __init__(self, link: LocalLink, limit: float) -> None:
        self._link, self._limit = link, limit
        self._half = 0
        self._used = 0

    @staticmethod
    def has_room(message_bytes: Sequence[int]) -> bool:
        """Whether the messages of a phase fit into a half."""
        return sum(map(_rounded_up, message_bytes)) <= SHARED // 2

    def begin(self) -> None:
        """Start at the other half."""
        if self._used:
            self._half, self._used = 1 - self._half, 0

    def send(self, parts: Sequence[Tensor]) -> PendingSum:
        """Write into this rank's memory and tell the others."""
        nbytes = sum(part.nbytes for part in parts)
        start = self._half * (SHARED // 2) + self._used
        self._used += _rounded_up(nbytes)
        rows = [rank[start : start + nbytes].view(parts[0].dtype) for rank in self._link.memory]
        torch.cat(list(parts), out=rows[self._link.rank])
        return _SharedRows(self._link, rows, self._link.notify(), self._limit)


class _SharedRows:
    def __init__(self, link: LocalLink, rows: list[Tensor], number: int, limit: float) -> None:
        self._link, self._rows, self._number, self._limit = link, rows, number, limit

    def is_ready(self) -> bool:
        return self._link.noticed(self._number, limit=0.0)

    def take(self) -> Tensor:
        self._link.noticed(self._number, self._limit)
        return _summed(self._rows)


def _summed(rows: Sequence[Tensor]) -> Tensor:
    first, *others = rows
    if not others:
        return first.clone()  # the memory is written to again
    second, *more = others
    total = first + second
    for row in more:
        total += row
    return total


def _rounded_up(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
