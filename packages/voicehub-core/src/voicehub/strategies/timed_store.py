"""A rendezvous store whose answers are not waited for without end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


class TimedStore:
    """Calls of a store that stands still where the process does that keeps it.

    Its client waits for an answer however long that takes. Here a call is made on a thread of its
    own, which is left behind when time is up; the store is not asked again after that.

    Args:
        store: of torch.distributed.
        seconds: tells how long an answer may take.
    """

    def __init__(self, store: Any, seconds: Callable[[], float]) -> None:
        self._store = store
        self._seconds = seconds
        self._lost = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method of the store; it raises TimeoutError where there is no answer in time."""

        def timed(*given: Any) -> Any:
            if not self._lost:
                answers: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
                method = getattr(self._store, name)
                threading.Thread(target=_answer, args=(answers, method, given), daemon=True).start()
                try:
                    found, error = answers.get(timeout=self._seconds())
                except queue.Empty:
                    self._lost = True
                else:
                    if error is not None:
                        raise error
                    return found
            raise TimeoutError("the store does not answer: its process stands still, or is cut off")

        return timed


def _answer(
    answers: queue.SimpleQueue[tuple[Any, Exception | None]],
    method: Callable[..., Any],
    given: tuple[Any, ...],
) -> None:
    try:
        answers.put((method(*given), None))
    except Exception as error:
        answers.put((None, error))
