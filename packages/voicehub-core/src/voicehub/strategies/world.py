"""The processes of a run as a whole: who they are, and how they agree.

Two process groups: the one that gradients travel over (nccl between GPUs, gloo between CPUs), and
one over gloo for decisions, which are a few bytes on the host and must not wait for a device. Where
all processes are of one machine, decisions take a shorter way, ``local_link``.

Every wait has a time limit. A limit that runs out, or a connection that breaks, ends in an error
that names the first cause, which ``FailureWatch`` keeps. While another rank says that it works
alone (``at_work``), decisions are waited for again.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import pickle
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from voicehub.errors import VoiceHubError
from voicehub.strategies.environment import RankEnvironment, require_environment
from voicehub.strategies.failure_watch import FailureWatch, RankFailedError, RankFailure
from voicehub.strategies.local_link import LARGEST_ROW, LateError, LocalLink, connect

logger = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")

#: Bytes that one exchange carries without a second round.
_CAPACITY = LARGEST_ROW
_LENGTH = 8
#: What gloo, nccl and the store say when a connection breaks or a wait is over.
_OF_CONNECTIONS = re.compile(
    r"connection|timed? ?out|gloo|nccl|socket|broken pipe|process group|recvvalue", re.IGNORECASE
)
#: What gloo says of a wait that is over, and may be begun again.
_OF_WAITS = re.compile(r"operation timed out", re.IGNORECASE)
#: Seconds in which a rank that works alone has surely said so.
_BEATS = 3.0
#: Hours that a rank may wait where another is known to work alone (``patient``).
_PATIENCE = timedelta(hours=12)
#: For the ranks to find each other at the start.
_RENDEZVOUS = timedelta(minutes=5)


class RankStalledError(VoiceHubError):
    """The other ranks did not come to a common point in time."""


class World:
    """All processes of a run, joined once a process; see ``join_world``.

    Attributes:
        rank: number of this one.
        size: how many there are.
        local_rank: number of this one on its machine.
        backend: ``nccl`` or ``gloo``.
        group: the process group of gradients.
        watch: keeps and finds failures.
        link: a direct line between all ranks, where they are of one machine.
    """

    def __init__(self, place: RankEnvironment, *, device: str, timeout: float) -> None:
        self.rank = place.rank
        self.size = place.world_size
        self.local_rank = place.local_rank
        self.launcher = place.launcher
        self.limit = timedelta(seconds=timeout)
        self.backend = "nccl" if device == "cuda" else "gloo"
        store = _join_store(place)
        self._hosts = place.rank == 0 and not _is_hosted()
        self.watch = FailureWatch(store, self.rank, self.size)
        dist.init_process_group(
            self.backend,
            store=dist.PrefixStore("voicehub/groups", store),  # type: ignore[attr-defined]
            rank=self.rank,
            world_size=self.size,
            timeout=self.limit,
        )
        self.group: Any = dist.group.WORLD
        self._control: Any = dist.new_group(backend="gloo", timeout=_PATIENCE)
        self.link: LocalLink | None = None  # it is made over the groups
        self.link = connect(self.rank, self.size, self.exchange)
        self.watch.start()

    def exchange(self, value: Any, *, what: str = "a decision", patient: bool = False) -> list[Any]:
        """Return the values of all ranks in their order; all of them must call it.

        Args:
            value: JSON; NaN and infinities are allowed.
            what: for the message when a rank does not come.
            patient: wait for hours, since another rank may work alone.

        Raises:
            RankFailedError: another rank failed.
            RankStalledError: one did not come in time.
        """
        return self.exchange_later(value, what=what, patient=patient)()

    def exchange_later(
        self, value: Any, *, what: str, patient: bool = False
    ) -> Callable[[], list[Any]]:
        """Send what ``exchange`` sends; the values of all ranks come from the call returned.

        All ranks must begin their exchanges in one order, and end them in one.
        """
        collect = self._gather_bytes(json.dumps(value).encode(), what, patient)
        return lambda: [json.loads(row) for row in collect()]

    def exchange_objects(self, value: Any, *, what: str) -> list[Any]:
        """Return Python objects of all ranks in their order; all of them must call it.

        They travel as pickles between processes of this run alone, as between a process and its
        data loading workers; nothing of the kind is ever written to or read from a file.
        """
        collect = self._gather_bytes(pickle.dumps(value), what, True)
        return [pickle.loads(row) for row in collect()]

    def _gather_bytes(self, payload: bytes, what: str, patient: bool) -> Callable[[], list[bytes]]:
        row, length = payload[:_CAPACITY], len(payload)
        if self.link is not None:
            first = self._send_rows(self.link, row, length, what, patient)
        else:
            first = self._gather_rows(row, length, _CAPACITY, what, patient)

        def collect() -> list[bytes]:
            rows = first()
            longest = max(length for length, _ in rows)
            if longest > _CAPACITY:
                rows = self._gather_rows(payload, len(payload), longest, what, patient)()
            return [content[:length] for length, content in rows]

        return collect

    def _send_rows(
        self, link: LocalLink, row: bytes, length: int, what: str, patient: bool
    ) -> Callable[[], list[tuple[int, bytes]]]:
        with self.explained(what):
            number = link.send(row, length)

        def collect() -> list[tuple[int, bytes]]:
            with self.explained(what):
                found = self._wait(
                    lambda limit: link.receive(number, limit.total_seconds()), patient
                )
            found[self.rank] = (length, row)
            return [found[rank] for rank in range(self.size)]

        return collect

    def _gather_rows(
        self, payload: bytes, length: int, capacity: int, what: str, patient: bool
    ) -> Callable[[], list[tuple[int, bytes]]]:
        row = bytearray(_LENGTH + capacity)
        row[:_LENGTH] = length.to_bytes(_LENGTH, "little")
        row[_LENGTH : _LENGTH + len(payload)] = payload
        own = torch.frombuffer(row, dtype=torch.uint8)
        gathered = [torch.empty_like(own) for _ in range(self.size)]
        with self.explained(what):
            work = dist.all_gather(gathered, own, group=self._control, async_op=True)

        def collect() -> list[tuple[int, bytes]]:
            with self.explained(what):
                self._wait(work.wait, patient)
            found = [bytes(part.numpy()) for part in gathered]
            return [(int.from_bytes(r[:_LENGTH], "little"), r[_LENGTH:]) for r in found]

        return collect

    def _wait(self, wait: Callable[[timedelta], ResultT], patient: bool) -> ResultT:
        """Wait for the others up to the limit, and on while one of them works alone.

        Who waits, in a callback or not, does not work: two could wait for each other for hours.
        """
        with self.at_work(None):
            return wait(_PATIENCE) if patient else self._wait_for_work(wait)

    def _wait_for_work(self, wait: Callable[[timedelta], ResultT]) -> ResultT:
        until, told = time.monotonic() + _PATIENCE.total_seconds(), False
        while True:
            try:
                return wait(self.limit)
            except RuntimeError as error:
                if not (isinstance(error, LateError) or _OF_WAITS.search(str(error))):
                    raise
                found = self.watch.others_work(_BEATS)
                if found is None or time.monotonic() > until:
                    raise
            if not told:
                logger.warning("Rank %d waits for rank %d, at %s.", self.rank, *found)
                told = True

    @contextmanager
    def at_work(self, what: str | None) -> Iterator[None]:
        """The others wait for this rank longer than the limit while it is at ``what``, if any."""
        before, self.watch.work = self.watch.work, what
        try:
            yield
        finally:
            self.watch.work = before

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Turn what a broken or late collective call raises into its first cause.

        Raises:
            RankFailedError: another rank failed.
            RankStalledError: nobody is known to have failed.
        """
        try:
            yield
        except VoiceHubError:
            raise
        except RuntimeError as error:
            if not _OF_CONNECTIONS.search(str(error)):
                raise  # of what was computed, not of the way to the others
            failure = self.watch.failure(wait=3.0)
            if failure is not None and failure.rank != self.rank:
                raise RankFailedError(failure) from error
            first_line = (str(error).splitlines() or [""])[0]
            stalled = RankStalledError(
                f"rank {self.rank} waited for the others to agree on {what}, and they did not come "
                f"within {self.limit.total_seconds():.0f} s (ddp_timeout), or their connection "
                f"broke: {first_line}"
            )
            self.watch.record(RankFailure(self.rank, type(stalled).__name__, str(stalled)))
            raise stalled from error

    def on_primary(self, work: Callable[[], ResultT], *, what: str) -> ResultT:
        """Run ``work`` on rank 0 while the others wait, and return its JSON result everywhere.

        Raises:
            whatever it raised, on rank 0; RankFailedError on the others.
        """
        failure: BaseException | None = None
        result: Any = None
        if self.rank == 0:
            try:
                result = work()
            except Exception as error:
                failure = error
                self.watch.report(error)
        told = None if failure is None else [type(failure).__name__, str(failure)]
        shared = self.exchange([result if failure is None else None, told], what=what, patient=True)
        if failure is not None:
            raise failure
        result, told = shared[0]
        if told is not None:
            raise RankFailedError(RankFailure(0, *told))
        return result  # type: ignore[no-any-return]

    @contextmanager
    def primary_first(self, what: str) -> Iterator[None]:
        """Let rank 0 do the work of the block, then the others, who find what it has prepared.

        Raises:
            RankFailedError: it failed on rank 0; the others do not begin.
        """
        if self.rank == 0:
            try:
                yield
            except Exception as error:
                self.watch.report(error)
                self.exchange([type(error).__name__, str(error)], what=what, patient=True)
                raise
            self.exchange(None, what=what, patient=True)
            return
        told = self.exchange(None, what=what, patient=True)[0]
        if told is not None:
            raise RankFailedError(RankFailure(0, *told))
        yield

    def close(self) -> None:
        """Leave: the others need not wait for this rank any more."""
        global _joined
        if _joined is self:
            _joined = None
        self.watch.stop()
        if self._hosts:
            self.watch.wait_for_others(limit=600.0)
        if self.link is not None:
            self.link.close()
        with suppress(Exception):  # the others may be gone already
            dist.destroy_process_group()


_joined: World | None = None


def join_world(strategy: str, *, device: str, timeout: float) -> World:
    """Return the world of this process; the first call joins it.

    Args:
        strategy: name of the strategy, for messages.
        device: ``cuda`` or ``cpu``.
        timeout: seconds that a rank waits for the others.

    Raises:
        ConfigurationError: no launcher has set the variables that say who this process is.
    """
    global _joined
    if _joined is None:
        place = require_environment(strategy)
        if device == "cuda":
            torch.cuda.set_device(place.local_rank)
        _joined = World(place, device=device, timeout=timeout)
        atexit.register(_leave)
    return _joined


def joined() -> World | None:
    """Return the world of this process; None before ``join_world``."""
    return _joined


def _leave() -> None:
    if _joined is not None:
        # An exception that nobody has caught: the interpreter has printed it and ends with it.
        uncaught = getattr(sys, "last_value", None)
        if isinstance(uncaught, Exception):
            _joined.watch.report(uncaught)
        _joined.close()


def _is_hosted() -> bool:
    """Whether the launcher keeps the store, and not rank 0."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _join_store(place: RankEnvironment) -> Any:
    """Return a store that all ranks see: the launcher's own under torchrun, else one of rank 0."""
    store = dist.TCPStore(  # type: ignore[attr-defined]
        place.address,
        place.port,
        place.world_size,
        is_master=place.rank == 0 and not _is_hosted(),
        timeout=_RENDEZVOUS,
        wait_for_workers=False,
    )
    # After a restart by torchrun nothing of the attempt before may be found.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"voicehub/attempt-{attempt}", store)  # type: ignore[attr-defined]
