"""One job on several processes: each does a share and tells how far it is; a killed one is missed.

A pool of the standard library waits forever for what a killed process had to do. Here each process
has a pipe of its own, whose end is the end of the process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from voicehub.errors import ConfigurationError, DataError, VoiceHubError

Send = Callable[[str, Any], None]
#: Seconds in which a process that is told to end does; one that was stopped hears nothing.
_GRACE = 10.0
_AT, _DONE, _ERROR, _END = "at", "done", "error", "end"


class WorkerLostError(VoiceHubError, RuntimeError):
    """A process was killed before its share was done."""


@dataclass(frozen=True)
class Tell:
    """What a process says of its work as it goes."""

    send: Send

    def at(self, place: str) -> None:
        """It begins with ``place``: a file, which the error names if the process is killed."""
        self.send(_AT, place)

    def done(self, count: int) -> None:
        """So many rows more are done, and what came of them is stored."""
        self.send(_DONE, count)


class SharedWork(Protocol):
    """A job; travels to other processes, so it must be picklable."""

    def run(self, units: Sequence[int], tell: Tell) -> None:
        """Do these units, and store what comes of each."""


def share_out(units: Sequence[int], processes: int) -> list[list[int]]:
    """The units of each process; there are no more processes than units.

    Raises:
        ConfigurationError: there are no processes.
    """
    if processes < 1:
        raise ConfigurationError(f"processes must be >= 1, got {processes}.")
    count = min(processes, len(units))
    return [list(units[first::count]) for first in range(count)]


def run_shared(
    work: SharedWork, units: Sequence[int], processes: int, told: Callable[[int], None]
) -> None:
    """Do ``units`` of ``work``, in this process if one is enough.

    Args:
        told: called with the number of rows whenever some are done.

    Raises:
        WorkerLostError: a process was killed; names the file that it was at. The others are ended.
        Exception: what the work raised first, in whichever process.
    """
    shares = share_out(units, processes)
    if len(shares) <= 1:
        here = Tell(lambda kind, value: told(value) if kind == _DONE else None)
        for share in shares:
            work.run(share, here)
        return
    threads = max(1, (os.cpu_count() or 1) // len(shares))
    workers: list[_Worker] = []
    try:
        for share in shares:
            workers.append(_Worker.start(work, share, threads))  # noqa: PERF401 -- ended below
        running = {worker.connection: worker for worker in workers}
        while running:
            for connection in wait(list(running)):
                worker = running[connection]  # type: ignore[index]
                if not worker.listen(told):
                    del running[worker.connection]
    finally:
        for worker in workers:
            worker.end()


@dataclass
class _Worker:
    """A process, and what it has said."""

    process: BaseProcess
    connection: Connection
    place: str | None = field(default=None)
    ended: bool = field(default=False)

    @classmethod
    def start(cls, work: SharedWork, share: list[int], threads: int) -> _Worker:
        # A fresh interpreter: a copy of one that has used torch's threads may hang.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(theirs, work, share, threads), daemon=True)
        with _interrupts_later():
            process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        return cls(process, ours)

    def listen(self, told: Callable[[int], None]) -> bool:
        """Take what it says next; False when there is no more."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):  # the latter where it was killed as it spoke
            if not self.ended:
                raise self._lost() from None
            return False
        if kind == _AT:
            self.place = value
        elif kind == _DONE:
            told(value)
        elif kind == _ERROR:
            raise value
        else:
            self.ended = True
        return True

    def _lost(self) -> WorkerLostError:
        self.process.join()
        code = self.process.exitcode or 0
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        memory = " (the system does that when memory runs out)" if code == -9 else ""
        where = "before its first file" if self.place is None else f"at {self.place}"
        return WorkerLostError(
            f"A process ended {how}{memory} {where}. What was done before is kept: the same "
            "command goes on from there. Fewer --processes leave more memory to each; if it ends "
            "at the same file again, take that out of the manifest."
        )

    def end(self) -> None:
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(_GRACE)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.connection.close()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, and is never heard by processes started there.

    These import for seconds before they can say so themselves.
    """
    if sys.platform == "win32":
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # started within, it would let signals through
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _child(connection: Connection, work: SharedWork, share: list[int], threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    os.environ["OMP_NUM_THREADS"] = str(threads)  # torch reads it when it is imported,
    if "torch" in sys.modules:  # which may be past
        sys.modules["torch"].set_num_threads(threads)
    try:
        work.run(share, Tell(lambda kind, value: connection.send((kind, value))))
    except Exception as error:
        _send_error(connection, error)
    connection.send((_END, None))


def _send_error(connection: Connection, error: Exception) -> None:
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of a class that cannot travel
        error = DataError(f"{type(error).__name__}: {error}")
    connection.send((_ERROR, error))
