"""One upload at a time, in a thread beside training, retried, and never raising."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from voicehub_hf.hub.staging import Upload

logger = logging.getLogger(__name__)

ATTEMPTS = 5
FIRST_DELAY = 1.0  # seconds before the second attempt; doubled before each further one


class BackgroundUploads:
    """Sends uploads in order; while one is on its way, only the newest of the others waits.

    Args:
        send: performs one upload or raises.
        is_final: whether an error will not go away by itself, so that trying again is no use.
        describe: an error as text fit for the eyes of everybody.
        attempts: how often an upload is tried.
        first_delay: seconds before the second attempt; doubled before each further one.
    """

    def __init__(
        self,
        send: Callable[[Upload], None],
        *,
        is_final: Callable[[Exception], bool],
        describe: Callable[[Exception], str],
        attempts: int = ATTEMPTS,
        first_delay: float = FIRST_DELAY,
    ) -> None:
        self._send = send
        self._is_final = is_final
        self._describe = describe
        self._attempts = attempts
        self._first_delay = first_delay
        self._changed = threading.Condition()
        self._waiting: Upload | None = None
        self._busy = False
        self._failures: list[str] = []
        self._stopping = threading.Event()

    def submit(self, upload: Upload) -> None:
        """Hand over an upload; returns at once. One that waited is replaced by it."""
        with self._changed:
            replaced, self._waiting = self._waiting, upload
            starts = not self._busy
            self._busy = True
        if replaced is not None:
            logger.info("%s is not uploaded: %s is newer.", replaced.title, upload.title)
            replaced.discard()
        if starts:
            # A daemon: an interrupted run must end, however slow the network is.
            threading.Thread(target=self._work, name="hub-upload", daemon=True).start()

    def wait(self, timeout: float) -> bool:
        """Whether everything was sent, or failed, within ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, timeout)

    def stop(self) -> None:
        """Send nothing more after the attempt that is under way."""
        self._stopping.set()

    def take_failures(self) -> list[str]:
        """What failed since the last call."""
        with self._changed:
            failures, self._failures = self._failures, []
        return failures

    def _work(self) -> None:
        while True:
            with self._changed:
                upload, self._waiting = self._waiting, None
                if upload is None:
                    self._busy = False
                    self._changed.notify_all()
                    return
            self._deliver(upload)

    def _deliver(self, upload: Upload) -> None:
        failure = "training ended with an error before it was tried"
        try:
            for attempt in range(1, self._attempts + 1):
                if self._stopping.is_set():
                    break
                try:
                    self._send(upload)
                    logger.info("%s is uploaded.", upload.title)
                    return
                except Exception as error:
                    failure = f"attempt {attempt}: {self._describe(error)}"
                    if self._is_final(error) or attempt == self._attempts:
                        break
                logger.info("Upload of %s: %s; trying again.", upload.title, failure)
                self._stopping.wait(self._first_delay * 2 ** (attempt - 1))
            with self._changed:
                what = f"{upload.title} ({upload.source})"
                self._failures.append(f"{what} was not uploaded: {failure}")
        finally:
            upload.discard()
