"""One piece of work off the training thread, whose error comes back to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path


class BackgroundWriter:
    """Runs ``work`` in a thread from the start; ``result`` waits for it.

    The thread is no daemon: an interpreter that ends waits until what is on its way to the disk
    is complete.
    """

    def __init__(self, work: Callable[[], Path]) -> None:
        self._work = work
        self._path: Path | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="voicehub-checkpoint-writer")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._path = self._work()
        except BaseException as error:  # handed to the thread that asks for the result
            self._error = error

    @property
    def is_running(self) -> bool:
        """Whether the work goes on."""
        return self._thread.is_alive()

    def result(self) -> Path:
        """Wait for the end and return what was written.

        Raises:
            whatever the work raised.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._path is not None
        return self._path
