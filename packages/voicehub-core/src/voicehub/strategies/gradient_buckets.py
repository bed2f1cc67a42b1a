"""Sums gradients over ranks in a few large messages, while the backward still goes on.

Why not torch's DistributedDataParallel: it wraps one module whose ``forward`` is the only entrance,
expects every parameter in every backward (or walks the graph to find which are missing), and knows
one backward for one forward. A recipe here calls the parts of a model as it likes, has several
phases and routes over shared modules, freezes some of them in a phase, and a rank may have no
micro-batch at all in the last window of an epoch. Bare parameters with a hook each carry all that.

One ``begin`` ... ``finish`` reduces the gradients of one phase once a window. Parameters are cut
into buckets in the order in which the phase's first backward reached them on rank 0. Once
``arm``ed, for the last backward of the window, a bucket is sent as soon as it is complete and all
buckets before it were sent, so that every rank sends the same buckets in the same order whatever
its graph looked like; ``finish`` sends the rest. Each message ends with one number for each
parameter that says whether this rank has a gradient: one that no rank used keeps None, as it would
with a single process, and no rank waits for what another did not use.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from voicehub.errors import RecipeError
from voicehub.strategies.gradient_sums import (
    GradientSums,
    MessageSums,
    PendingSum,
    SharedMemorySums,
)
from voicehub.strategies.world import World

logger = logging.getLogger(__name__)

_SMALLEST, _LARGEST = 512 << 10, 25 << 20
#: Buckets that a model of middling size is cut into: enough to overlap, few enough to be large.
_WANTED = 8


@dataclass
class _Bucket:
    """Some parameters of one dtype and device, and their message while it is under way."""

    parameters: list[nn.Parameter]
    missing: int = 0  # of those expected in this backward, how many have not arrived
    pending: PendingSum | None = None
    total: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the message."""
        entries = sum(p.numel() for p in self.parameters) + len(self.parameters)
        return entries * self.parameters[0].element_size()


class GradientBuckets:
    """Reduces the gradients of one set of parameters after the other.

    Args:
        world: the ranks.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._messages: GradientSums = MessageSums(world)
        self._shared: GradientSums | None = None
        if world.link is not None:
            self._shared = SharedMemorySums(world.link, world.limit.total_seconds())
        self._sums: GradientSums = self._messages
        self._layouts: dict[tuple[int, ...], list[_Bucket]] = {}
        self._unordered: set[tuple[int, ...]] = set()  # whose first backward is still to come
        self._key: tuple[int, ...] = ()
        self._arrivals: list[nn.Parameter] = []
        self._hooked: set[nn.Parameter] = set()
        self._current: list[_Bucket] | None = None
        self._home: dict[nn.Parameter, _Bucket] = {}
        self._armed = False
        self._sent = self._taken = 0

    def begin(self, parameters: Sequence[nn.Parameter]) -> None:
        """Take up the parameters whose gradients the next ``finish`` reduces."""
        self._key = key = tuple(map(id, parameters))
        self._arrivals = []
        if key not in self._layouts:
            self._layouts[key] = _cut(parameters)
            self._unordered.add(key)
            self._tell_of_size(self._layouts[key])
            for parameter in parameters:
                if parameter not in self._hooked and parameter.is_leaf:
                    self._hooked.add(parameter)
                    self._watch(parameter)
        self._current = self._layouts[key]
        self._home = {p: bucket for bucket in self._current for p in bucket.parameters}
        self._armed, self._sent, self._taken = False, 0, 0
        self._sums = self._sums_for(self._current)
        self._sums.begin()

    def _sums_for(self, buckets: Sequence[_Bucket]) -> GradientSums:
        """Shared memory for what is in the memory of the host, unless it is very much."""
        on_host = all(b.parameters[0].device.type == "cpu" for b in buckets)
        fits = SharedMemorySums.has_room([bucket.nbytes for bucket in buckets])
        return self._shared if self._shared is not None and on_host and fits else self._messages

    def _tell_of_size(self, buckets: Sequence[_Bucket]) -> None:
        large = self._shared is not None and self._sums_for(buckets) is self._messages
        if large and self._world.rank == 0 and buckets[0].parameters[0].device.type == "cpu":
            megabytes = sum(bucket.nbytes for bucket in buckets) >> 20
            logger.info("%d MB of gradients go over gloo: too many to share memory.", megabytes)

    def _watch(self, parameter: nn.Parameter) -> None:
        # A freeze rule may hold it for now, and a hook can only be set on what takes gradients.
        frozen = not parameter.requires_grad
        parameter.requires_grad_(True)
        parameter.register_post_accumulate_grad_hook(self._arrived)  # type: ignore[no-untyped-call]
        parameter.requires_grad_(not frozen)

    def arm(self) -> None:
        """Send buckets from now on as the backward completes them: it is the window's last."""
        assert self._current is not None
        for bucket in self._current:
            bucket.missing = sum(p.requires_grad for p in bucket.parameters)
        self._armed = True

    def _arrived(self, parameter: Tensor) -> None:
        if not self._armed:
            return
        bucket = self._home.get(parameter)  # type: ignore[call-overload]
        if bucket is None:
            return
        if bucket.pending is not None:
            raise RecipeError(
                "A parameter got a gradient after its sum over the ranks was sent: its backward "
                "runs in several pieces. Use activation checkpointing with use_reentrant=False."
            )
        if self._key in self._unordered:
            self._arrivals.append(parameter)  # type: ignore[arg-type]
        bucket.missing -= 1
        if bucket.missing == 0:
            self._send_complete()

    def _send_complete(self) -> None:
        assert self._current is not None
        while self._sent < len(self._current) and self._current[self._sent].missing <= 0:
            self._send(self._current[self._sent])
        while self._taken < self._sent and self._take(self._current[self._taken], wait=False):
            pass

    def _send(self, bucket: _Bucket) -> None:
        with self._world.explained("the sum of gradients"):
            bucket.pending = self._sums.send(_parts(bucket.parameters))
        self._sent += 1

    def _take(self, bucket: _Bucket, *, wait: bool) -> bool:
        """Take the sum of the next bucket if it is there; whether it is."""
        assert bucket.pending is not None
        with self._world.explained("the sum of gradients"):
            if not wait and not bucket.pending.is_ready():
                return False
            bucket.total = bucket.pending.take()
        self._taken += 1
        return True

    def finish(self) -> None:
        """Send what was not sent, wait, and put the sums in the place of the gradients."""
        assert self._current is not None
        self._armed = False
        for bucket in self._current[self._sent :]:
            self._send(bucket)
        for bucket in self._current[self._taken :]:
            self._take(bucket, wait=True)
        for bucket in self._current:
            assert bucket.total is not None
            _unpack(bucket.parameters, bucket.total)
            bucket.pending = bucket.total = None
        if self._key in self._unordered:
            self._order(self._current)
        self._current, self._home = None, {}

    def _order(self, buckets: list[_Bucket]) -> None:
        """Cut anew, in the order in which gradients came on rank 0; what did not come is last."""
        held = [p for bucket in buckets for p in bucket.parameters]
        numbers = {parameter: number for number, parameter in enumerate(held)}
        own = list(dict.fromkeys(numbers[p] for p in self._arrivals))
        order = self._world.exchange(own, what="the order of gradients")[0]
        self._unordered.discard(self._key)
        rest = sorted(set(range(len(held))).difference(order))
        self._layouts[self._key] = _cut([held[number] for number in (*order, *rest)])


def _cut(parameters: Sequence[nn.Parameter]) -> list[_Bucket]:
    """Cut parameters into buckets of one dtype and device each, in their order."""
    nbytes = sum(p.numel() * p.element_size() for p in parameters)
    limit = min(max(nbytes // _WANTED, _SMALLEST), _LARGEST)
    buckets: list[_Bucket] = []
    open_buckets: dict[tuple[torch.dtype, torch.device], tuple[_Bucket, int]] = {}
    for parameter in parameters:
        kind = (parameter.dtype, parameter.device)
        bucket, held = open_buckets.get(kind, (None, 0))
        if bucket is None or held >= limit:
            bucket, held = _Bucket([]), 0
            buckets.append(bucket)
        bucket.parameters.append(parameter)
        open_buckets[kind] = bucket, held + parameter.numel() * parameter.element_size()
    return buckets


def _parts(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Return the gradients, zeros where there are none, and a one or zero for each parameter."""
    first = parameters[0]
    parts, present = [], []
    for parameter in parameters:
        grad = parameter.grad
        present.append(0.0 if grad is None else 1.0)
        if grad is None:
            parts.append(torch.zeros(parameter.numel(), dtype=first.dtype, device=first.device))
        elif grad.is_sparse:
            raise RecipeError(
                "A parameter has a sparse gradient, which is not summed over ranks: build the "
                "embedding with sparse=False."
            )
        else:
            parts.append(grad.reshape(-1))
    parts.append(torch.tensor(present, dtype=first.dtype, device=first.device))
    return parts


def _unpack(parameters: Sequence[nn.Parameter], message: Tensor) -> None:
    """Let gradients be views of the message; None where no rank has one."""
    sizes = [p.numel() for p in parameters]
    *sums, present = torch.split(message, [*sizes, len(parameters)])
    for parameter, total, count in zip(parameters, sums, present.tolist(), strict=True):
        parameter.grad = total.view_as(parameter) if count else None
