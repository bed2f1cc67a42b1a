"""Work in a copy of this process, beside it.

What the copy does to memory, random states, caches and open files is lost with it, so a run goes
on bit for bit as without one. It is a fork, as the workers of a data loader are: made before the
first backward, on one thread, at a low priority, and gone when its parent is.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from voicehub.errors import VoiceHubError

#: Seconds of computing that a copy may take. A rehearsal of a model of billions of parameters
#: takes about one minute of them; what takes five is caught in something.
LIMIT = 300
#: What is added to its niceness: where all processors are busy it takes a tenth of one.
NICENESS = 10
_PR_SET_PDEATHSIG = 1
_DONE = b"null"  # the line that ends the answers
#: Copies that were ended and not seen dead yet. On a busy machine that takes a while, for which
#: no run waits.
_dying: set[int] = set()


class AsideError(VoiceHubError):
    """There can be no copy of this process, or it has ended without an answer."""


class Aside:
    """Runs ``work`` in a copy of this process and receives what it yields.

    Args:
        work: yields mappings of JSON values. What it raises becomes the last answer,
            ``{"problem": "..."}``.
        limit: seconds of computing after which the copy is ended.

    Raises:
        AsideError: this system cannot fork, or has no room for another process.
    """

    def __init__(
        self, work: Callable[[], Iterable[Mapping[str, Any]]], *, limit: int = LIMIT
    ) -> None:
        if not sys.platform.startswith("linux"):
            raise AsideError(f"needs processes as Linux makes them, this is {sys.platform}")
        _bury()
        self._limit = limit
        self._text = b""
        self._open = True
        self._reading, writing = os.pipe()
        parent = os.getpid()
        # A Ctrl-C that comes at once must not raise in the copy what is for the run.
        usual = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid = _forked()
            if self._pid == 0:
                _be_aside(work, writing, limit, parent, usual)
        except OSError as error:
            os.close(self._reading)
            raise AsideError(f"no room for another process ({error})") from error
        finally:
            os.close(writing)
            signal.pthread_sigmask(signal.SIG_SETMASK, usual)

    def take(self, wait: float = 0.0) -> list[dict[str, Any]]:
        """Return the answers that have come since the last call.

        Args:
            wait: seconds to wait for the next one, at most.
        """
        ends = time.monotonic() + wait
        found: list[dict[str, Any]] = []
        while self._open and not found:
            poll = select.poll()
            poll.register(self._reading, select.POLLIN)
            if not poll.poll(1000 * max(0.0, ends - time.monotonic())):
                break
            found = self._read()
        return found

    def close(self) -> None:
        """End the copy, whatever it is at."""
        if self._open:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._leave()

    def _leave(self) -> None:
        self._open = False
        os.close(self._reading)
        _dying.add(self._pid)
        _bury()

    def _read(self) -> list[dict[str, Any]]:
        more = os.read(self._reading, 1 << 16)
        if not more:  # without a word
            self._open = False
            os.close(self._reading)
            return self._ended(_status(self._pid))
        self._text += more
        *whole, self._text = self._text.split(b"\n")
        if _DONE in whole:
            self._leave()
        return [json.loads(line) for line in whole if line != _DONE]

    def _ended(self, status: int | None) -> list[dict[str, Any]]:
        how = "without a word"
        if status is not None and os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGXCPU:
                return [{"problem": f"more than {self._limit} seconds of computing"}]
            how = f"by {signal.Signals(number).name}"
        return [{"problem": f"its process ended {how}"}]


def _forked() -> int:
    with warnings.catch_warnings():
        # Newer Pythons warn of threads: the copy uses none of the locks they may hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _status(pid: int) -> int | None:
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:  # somebody else has waited for it
        return None


def _bury() -> None:
    for pid in list(_dying):
        try:
            over = os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            over = True
        if over:
            _dying.discard(pid)


# Whoever takes over children at the end, in a container, may bury none.
atexit.register(_bury)


# -- in the copy -------------------------------------------------------------------------------


def _be_aside(
    work: Callable[[], Iterable[Mapping[str, Any]]],
    writing: int,
    limit: int,
    parent: int,
    mask: Iterable[int],
) -> None:  # pragma: no cover - in a process of its own
    """Do the work and leave, without what an interpreter does at its end."""
    status = 1

    def settled_work() -> Iterable[Mapping[str, Any]]:
        _settle_aside(writing, limit, parent, mask)
        yield from work()

    try:
        for answer in _answers(settled_work):
            _write(writing, json.dumps(answer).encode() + b"\n")
        _write(writing, _DONE + b"\n")
        status = 0
    finally:
        os._exit(status)


def _answers(work: Callable[[], Iterable[Mapping[str, Any]]]) -> Iterable[Mapping[str, Any]]:
    try:
        yield from work()
    except BaseException as error:
        text = " ".join(str(error).split())
        yield {"problem": f"{type(error).__name__}: {text}" if text else type(error).__name__}


def _settle_aside(
    writing: int, limit: int, parent: int, mask: Iterable[int]
) -> None:  # pragma: no cover
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before it could be asked to take the copy along
        os._exit(1)
    gc.freeze()  # a look through what the run has made would copy it, page by page
    _be_modest(limit)
    _be_silent()
    _leave_connections(writing)
    torch.set_num_threads(1)


def _be_modest(limit: int) -> None:  # pragma: no cover
    """Little of the processors, and the first to go where memory runs out."""
    import resource

    os.nice(NICENESS)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
    with contextlib.suppress(OSError):  # a system without such scores
        Path("/proc/self/oom_score_adj").write_text("1000")


def _be_silent() -> None:  # pragma: no cover
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - to the end


def _leave_connections(keep: int) -> None:  # pragma: no cover
    """Close sockets and pipes: whoever is at their other end must see when the parent is gone."""
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError):
            mode = os.fstat(number).st_mode
            if number > 2 and number != keep and (stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)):
                os.close(number)


def _write(number: int, text: bytes) -> None:  # pragma: no cover
    while text:
        text = text[os.write(number, text) :]
