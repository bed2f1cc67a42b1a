"""Reads the next window while the other processes are still on their way."""

from __future__ import annotations

from collections.abc import Iterator

from voicehub.trainer.micro_batch import MicroBatch

Found = tuple[list[MicroBatch], Exception | None]


class ReadAhead:
    """Windows of an epoch, of which the next may be read before it is taken.

    Position and random states do not depend on it: a checkpoint counts what was trained on. What
    reading raises is kept for ``take``, since the other processes must hear of it.

    Args:
        windows: lists of micro-batches.
    """

    def __init__(self, windows: Iterator[list[MicroBatch]]) -> None:
        self._windows = windows
        self._found: Found | None = None

    def read(self) -> None:
        """Read the next window, unless that is done already."""
        if self._found is not None:
            return
        try:
            self._found = next(self._windows, []), None
        except Exception as error:
            self._found = [], error

    def take(self) -> Found:
        """Return the next window, empty at the end of the epoch, and what reading it raised."""
        self.read()
        assert self._found is not None
        found, self._found = self._found, None
        return found
