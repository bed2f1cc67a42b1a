"""Real processes for checks of what several ranks do: started once, used by many checks."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

#: Seconds that only a task that hangs takes, on however busy a machine.
_LIMIT = 600.0
#: Seconds in which a process that has hung up is found to have ended.
_END = 60.0
#: What every rank imports; none of it starts a thread, so that it can be forked.
_PRELOADED = ["voicehub.trainer.trainer", "voicehub.strategies.fsdp", "torch._dynamo"]


class RankTaskError(AssertionError):
    """A task failed on a rank, or did not come back."""


class RankPool:
    """Processes that form a world over gloo on this machine, one thread each.

    The world stays joined from task to task. After a failure the processes are ended, and the
    next task starts new ones. Temporary files of theirs lie in a folder that ends with them: they
    are killed, and clean up nothing themselves.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._port = _Port()

    def outcomes(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a task that may end its process; returns, by rank, its result or the exit code.

        The world ends with the task; processes that are left join a new one in the next.
        """
        self._send(task, arguments, leaves=True)
        found = [self._outcome(rank) for rank in range(self.world_size)]
        if all(process.is_alive() for process in self._processes):
            self._port.change()
        else:
            self.close()
        return found

    def _outcome(self, rank: int) -> Any:
        try:
            return self._receive(rank, _LIMIT)[1]
        except RankTaskError:
            return self._processes[rank].exitcode

    def run(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call ``task(*arguments)`` on every rank and return what each returned, by rank.

        Args:
            task: a function at the top of a module, as are its arguments' classes.
            arguments: the same for every rank.

        Raises:
            RankTaskError: it failed on a rank, or was not done in time.
        """
        try:
            self._send(task, arguments, leaves=False)
            results = [self._receive(rank, _LIMIT) for rank in range(self.world_size)]
        except BaseException:
            self.close()
            raise
        failed = [(rank, text) for rank, (good, text) in enumerate(results) if not good]
        if failed:
            self.close()
            shown = "\n".join(f"rank {rank}: {text}" for rank, text in failed)
            raise RankTaskError(f"{task.__name__} failed:\n{shown}")
        return [result for _, result in results]

    def _send(self, task: Callable[..., Any], arguments: Any, *, leaves: bool) -> None:
        if not self._processes:
            self._start()
        for pipe in self._pipes:
            pipe.send((task, arguments, str(self._port.number), leaves))

    def _start(self) -> None:
        context = _context()
        self._folder = tempfile.TemporaryDirectory(
            prefix="voicehub-ranks-", ignore_cleanup_errors=True
        )
        self._port.change()
        for rank in range(self.world_size):
            ours, theirs = context.Pipe()
            place = {
                "MASTER_ADDR": "127.0.0.1",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(self.world_size),
                "OMP_NUM_THREADS": "1",
            }
            process = context.Process(
                target=_serve, args=(theirs, place, self._folder.name), daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def _receive(self, rank: int, limit: float) -> tuple[bool, Any]:
        pipe, process = self._pipes[rank], self._processes[rank]
        if not pipe.poll(limit):
            raise RankTaskError(f"rank {rank} did not come back within {limit:.0f} s")
        try:
            answer: tuple[bool, Any] = pipe.recv()
        except EOFError:
            process.join(_END)
            raise RankTaskError(f"rank {rank} ended with code {process.exitcode}") from None
        return answer

    def close(self) -> None:
        """End the processes."""
        processes, self._processes = self._processes, []
        pipes, self._pipes = self._pipes, []
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.kill()
            process.join()
        self._port.release()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _context() -> Any:
    """Processes with all of ours imported: by a server that forks, once, where there can be one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


_pools: dict[int, RankPool] = {}


def pool_of(world_size: int) -> RankPool:
    """Processes that this process keeps until it ends, started by the first task."""
    if world_size not in _pools:
        _pools[world_size] = RankPool(world_size)
        atexit.register(_pools[world_size].close)
    return _pools[world_size]


def run_on_ranks(world_size: int, task: Callable[..., Any], *arguments: Any) -> list[Any]:
    """``RankPool.run`` on the processes of ``pool_of``."""
    return pool_of(world_size).run(task, *arguments)


def _serve(pipe: Connection, place: Mapping[str, str], folder: str) -> None:
    """One rank: does what it is asked until the pipe closes, with temporary files in a folder."""
    os.environ.update(place)
    tempfile.tempdir = folder
    import torch  # in the new process, once the number of threads is set

    torch.set_num_threads(1)
    while True:
        try:
            task, arguments, os.environ["MASTER_PORT"], leaves = pipe.recv()
        except EOFError:
            return
        except Exception:
            pipe.send((False, traceback.format_exc()))
            continue
        try:
            answer = (True, task(*arguments))
        except BaseException:
            answer = (False, traceback.format_exc())
        world = sys.modules.get("voicehub.strategies.world")
        if leaves and world is not None and world.joined() is not None:
            world.joined().close()
        pipe.send(answer)


class _Port:
    """A port of this machine for rank 0 to listen at, which nobody else is given meanwhile.

    On Linux a socket that is bound and does not listen keeps others from being given its port, and
    lets those listen who ask for it by number; elsewhere the port is free, and most likely stays.
    """

    def __init__(self) -> None:
        self.number = 0
        self._kept: socket.socket | None = None

    def change(self) -> None:
        """Take another."""
        self.release()
        probe = socket.socket()
        if sys.platform == "linux":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        self.number = probe.getsockname()[1]
        if sys.platform == "linux":
            self._kept = probe
        else:
            probe.close()

    def release(self) -> None:
        """Give it back."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
