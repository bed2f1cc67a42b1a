"""A direct line between the ranks of one machine: pipes, and memory that all of them map.

Between processes of one machine gloo sends every byte through sockets, with a thread of its own at
both ends; on cores that compute, that costs as much as the sums themselves. Here a decision is one
write and one read of a pipe, and a gradient is copied once, to where the other ranks read it.

Nothing has a name in the file system. Each rank makes its pipes and its memory without one, and the
others open them as ``/proc/<pid>/fd/<n>``; so nothing is left behind by a process that is killed,
and the pipes of a dead rank read as ended.
"""

from __future__ import annotations

import logging
import mmap
import os
import select
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

#: Set to ``off`` on any rank, all of them talk over gloo alone.
SWITCH = "VOICEHUB_LOCAL_LINK"
#: Every rank reads what every other one writes, which is no way for very many.
MOST_RANKS = 16
#: Bytes of memory that a rank shares; it takes only as much as is written to.
SHARED = 64 << 20
#: Most bytes of a row: with its length it is written at one go (POSIX promises 512, Linux 4096).
LARGEST_ROW = 2048
_LENGTH = 8
#: Random bytes at the beginning of the memory, by which the others know whose it is.
_MARK = 16
_MFD_CLOEXEC = 1
#: Milliseconds, the most that a poll takes.
_LONGEST_POLL = float(2**31 - 1)
#: Rows that nobody has read yet must fit into a pipe; the system makes small ones for heavy users.
_SMALLEST_PIPE = 16 << 10


class LinkError(RuntimeError):
    """A rank of this machine has gone, or did not come in time."""


class LateError(LinkError):
    """It did not come in time; it may be waited for again."""


class LocalLink:
    """Connects this rank with all others; ``connect`` makes one.

    Attributes:
        memory: by rank, bytes that it writes and the others read.
    """

    def __init__(self, rows: _Pipes, notices: _Pipes, memory: Sequence[Tensor], rank: int) -> None:
        self.memory = list(memory)
        self.rank = rank
        self._rows, self._notices = rows, notices
        self._others = [other for other in range(len(memory)) if other != rank]
        self._inboxes = {other: _Inbox() for other in self._others}
        self._sent_rows = 0
        self._noticed = dict.fromkeys(self._others, 0)
        self._notices_sent = 0

    def send(self, row: bytes, length: int) -> int:
        """Send a row to the other ranks, and the length of what it may be the beginning of.

        Returns its number. Ranks send their rows in the same order.
        """
        self._rows.write(length.to_bytes(_LENGTH, "little") + row)
        self._sent_rows += 1
        return self._sent_rows

    def receive(self, number: int, limit: float) -> dict[int, tuple[int, bytes]]:
        """Return length and row of that number of each other rank, once; again if one was late.

        Args:
            number: what ``send`` gave.
            limit: seconds to wait for a rank that has not sent it.

        Raises:
            LateError: one is late.
            LinkError: one is gone.
        """
        for other, inbox in self._inboxes.items():
            while number not in inbox.rows:
                inbox.add(self._rows.read(other, limit))
        return {other: inbox.rows.pop(number) for other, inbox in self._inboxes.items()}

    def notify(self) -> int:
        """Tell the others that one more piece of this rank's memory may be read; its number."""
        self._notices.write(b"n")
        self._notices_sent += 1
        return self._notices_sent

    def noticed(self, number: int, limit: float) -> bool:
        """Whether the piece of that number may be read of every other rank, waiting up to a limit.

        Raises:
            LinkError: one is gone, or late where ``limit`` is not 0.
        """
        for other in self._others:
            while self._noticed[other] < number:
                found = self._notices.read(other, limit)
                if not found:
                    return False
                self._noticed[other] += len(found)
        return True

    def close(self) -> None:
        """Hang up."""
        self._rows.close()
        self._notices.close()
        self.memory = []


class _Inbox:
    """Rows of one other rank that nobody has asked for yet, by number."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, bytes]] = {}
        self._received = 0
        self._bytes = bytearray()  # the beginning of the next

    def add(self, found: bytes) -> None:
        """Take apart what a pipe gave."""
        self._bytes += found
        while len(self._bytes) >= _LENGTH:
            length = int.from_bytes(self._bytes[:_LENGTH], "little")
            end = _LENGTH + min(length, LARGEST_ROW)
            if len(self._bytes) < end:
                return
            self._received += 1
            self.rows[self._received] = (length, bytes(self._bytes[_LENGTH:end]))
            del self._bytes[:end]


class _Pipes:
    """One pipe from each other rank to this one, and one to each of them.

    Args:
        rank: this one.
        size: how many there are.
    """

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._readers: dict[int, int] = {}
        self._writers: dict[int, int] = {}
        self.offered = [-1] * size  # numbers of the ends that the others write to

    def open(self) -> None:
        """Make those that this rank reads."""
        for other in range(len(self.offered)):
            if other != self._rank:
                self._readers[other], self.offered[other] = os.pipe()

    def connect(self, pids: Sequence[int], offers: Sequence[Sequence[int]]) -> None:
        """Open the ends that the others offer."""
        for other in self._readers:
            path = _path(pids[other], offers[other][self._rank])
            self._writers[other] = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            _require_room(self._writers[other])

    def keep_none_offered(self) -> None:
        """Close them here, once all are open there: a pipe ends with the rank that writes to it."""
        for end in self.offered:
            if end >= 0:
                os.close(end)
        self.offered = []

    def write(self, data: bytes) -> None:
        """Write to all others."""
        for other in self._writers:
            self._write(other, data)

    def _write(self, other: int, data: bytes) -> None:
        try:
            os.write(self._writers[other], data)
        except OSError as error:
            raise LinkError(f"the connection to rank {other} is broken: {error}") from error

    def read(self, other: int, limit: float) -> bytes:
        """Return what has come from a rank; nothing only where ``limit`` is 0 and nothing has."""
        end = self._readers[other]
        poll = select.poll()
        poll.register(end, select.POLLIN)
        if not poll.poll(min(limit * 1000.0, _LONGEST_POLL)):
            if limit > 0:
                raise LateError(f"the connection to rank {other} timed out")
            return b""
        found = os.read(end, 1 << 16)
        if not found:
            raise LinkError(f"the connection to rank {other} was closed")
        return found

    def close(self) -> None:
        """Close all ends."""
        self.keep_none_offered()
        for end in (*self._readers.values(), *self._writers.values()):
            with suppress(OSError):
                os.close(end)
        self._readers, self._writers = {}, {}


def connect(rank: int, size: int, exchange: Callable[[Any], list[Any]]) -> LocalLink | None:
    """Return a link between all ranks; None on all of them where one is on another machine.

    Args:
        rank: this one.
        size: how many there are.
        exchange: JSON values of all ranks; every rank calls ``connect``.
    """
    own: _Own | None = None
    place, reason = [""], None
    try:
        place = _place(size)
        own = _Own(rank, size)
    except Exception as error:  # whatever it is: the others wait for what this rank says
        reason = _told(error)
    rows = exchange([place, reason, None if own is None else own.offer()])
    reason = next((row[1] for row in rows if row[1]), None)
    if reason is None and any(row[0] != place for row in rows):
        reason = "they are processes of several machines or containers"
    link, level = None, logging.INFO
    if reason is None and own is not None:
        level = logging.WARNING  # of what should have worked
        try:
            link = own.connected([row[2] for row in rows])
        except Exception as error:
            reason = _told(error)
        reason = next(filter(None, exchange(reason)), None)
    if own is not None:
        own.close(entirely=reason is not None)
    if reason is not None and rank == 0:
        logger.log(level, "Ranks talk over gloo alone: %s.", reason)
    return link if reason is None else None


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


class _Own:
    """What a rank makes for the others to open."""

    def __init__(self, rank: int, size: int) -> None:
        assert sys.platform == "linux"
        self._rank, self._mark = rank, os.urandom(_MARK)
        self._rows, self._notices = _Pipes(rank, size), _Pipes(rank, size)
        self._memory = -1
        try:
            self._rows.open()
            self._notices.open()
            self._memory = _memory_file()
            os.ftruncate(self._memory, SHARED)
            os.pwrite(self._memory, self._mark, 0)
        except BaseException:
            self.close(entirely=True)
            raise

    def offer(self) -> list[Any]:
        ends = [self._rows.offered, self._notices.offered]
        return [os.getpid(), self._memory, *ends, self._mark.hex()]

    def connected(self, offers: Sequence[Sequence[Any]]) -> LocalLink:
        """Open what all ranks offer.

        Raises:
            OSError: it cannot be opened, or is not theirs.
        """
        pids = [offer[0] for offer in offers]
        # First of all: only where the memory is theirs, so are the pipes. Machines that were copied
        # while they ran have one name, and /proc may show the process numbers of a container.
        memory = [_mapped(_path(offer[0], offer[1])) for offer in offers]
        for rank, (offer, found) in enumerate(zip(offers, memory, strict=True)):
            if bytes(found[:_MARK].tolist()).hex() != offer[4]:
                raise OSError(f"process {offer[0]} in /proc is not rank {rank}")
        self._rows.connect(pids, [offer[2] for offer in offers])
        self._notices.connect(pids, [offer[3] for offer in offers])
        return LocalLink(self._rows, self._notices, memory, self._rank)

    def close(self, *, entirely: bool) -> None:
        """Close what was for the others to open; the mapped memory needs no descriptor either."""
        if self._memory >= 0:
            os.close(self._memory)
        for pipes in (self._rows, self._notices):
            if entirely:
                pipes.close()
            else:
                pipes.keep_none_offered()


def _memory_file() -> int:
    """Make a file of memory, without a name in the file system.

    Raises:
        OSError: it is refused, or the C library is older than 2.27.
    """
    name = "voicehub-gradients"
    if hasattr(os, "memfd_create"):
        assert sys.platform == "linux"
        return os.memfd_create(name, os.MFD_CLOEXEC)
    # Pythons that are built for old systems (conda's, uv's) do without it on new ones, too.
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "memfd_create"):
        raise OSError("neither Python nor the C library has memfd_create")
    found = int(library.memfd_create(name.encode(), _MFD_CLOEXEC))
    if found < 0:
        raise OSError(ctypes.get_errno(), f"memfd_create: {os.strerror(ctypes.get_errno())}")
    return found


def _place(size: int) -> list[str]:
    """What names the machine, and the space of process numbers on it.

    Raises:
        OSError: there can be no link; says why.
    """
    if os.environ.get(SWITCH, "on") == "off":
        raise OSError(f"{SWITCH}=off")
    if size > MOST_RANKS:
        raise OSError(f"a direct line is for {MOST_RANKS} of them at most")
    if sys.platform != "linux":
        raise OSError("memory and pipes without a name that others can open need Linux")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return [boot, str(Path("/proc/self/ns/pid").readlink())]


def _path(pid: int, number: int) -> str:
    return f"/proc/{pid}/fd/{number}"


def _mapped(path: str) -> Tensor:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        mapped = mmap.mmap(descriptor, SHARED)
    finally:
        os.close(descriptor)
    return torch.frombuffer(mapped, dtype=torch.uint8)


def _require_room(pipe: int) -> None:
    import fcntl  # which Windows does not have

    assert sys.platform == "linux"
    room = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    if room < _SMALLEST_PIPE:
        raise OSError(f"the system gives pipes of {room} bytes")
