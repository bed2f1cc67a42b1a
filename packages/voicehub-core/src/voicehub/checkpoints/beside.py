"""Work done beside the caller's own, where a thread can be had."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")


class Beside(Generic[ResultT]):
    """Runs ``work`` in a thread for as long as the ``with`` block lasts; ``result()`` waits for it.

    The block is not left before the work has ended, whatever happens in it. Where no thread can be
    started any more, as at the end of the interpreter, the work is done on entering.
    """

    def __init__(self, work: Callable[[], ResultT]) -> None:
        self._work = work
        self._results: list[ResultT] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # raised where the result is asked for
            self._error = error

    def result(self) -> ResultT:
        """Wait for the end and return what the work returned.

        Raises:
            whatever the work raised.
        """
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def __enter__(self) -> Beside[ResultT]:
        thread = threading.Thread(target=self._run, name="voicehub-checkpoint-beside")
        try:
            thread.start()
        except RuntimeError:
            self._run()
        else:
            self._thread = thread
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._thread.join()
