"""A file that kills the process that opens it, as a system without memory kills."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

POSSIBLE = hasattr(fcntl, "F_SETLEASE")


@contextlib.contextmanager
def deadly(path: Path, *, worker: int) -> Iterator[None]:
    """Whoever opens the file waits for our lease on it, and child number ``worker`` is killed then.

    Args:
        worker: in the order in which processes were started within the context, from 0.
    """
    others = {child.pid for child in multiprocessing.active_children()}  # of other tests

    def kill(*_: Any) -> None:
        children = [c for c in multiprocessing.active_children() if c.pid not in others]
        children.sort(key=lambda child: int(child.name.rpartition("-")[2]))
        children[worker].kill()

    before = signal.signal(signal.SIGIO, kill)
    file = os.open(path, os.O_RDWR)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    finally:
        os.close(file)
        signal.signal(signal.SIGIO, before)
