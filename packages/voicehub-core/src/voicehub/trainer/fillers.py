"""Micro-batches that count nothing, for processes without one where a forward is a joint act."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from voicehub.errors import DataError
from voicehub.trainer.micro_batch import MicroBatch, Window


class Fillers:
    """Fills up windows with the newest micro-batch of this process.

    Args:
        first: makes the first micro-batch of the data, for a process that never had one; None
            where the data is a stream.
    """

    def __init__(self, first: Callable[[], MicroBatch | None]) -> None:
        self._first = first
        self._newest: MicroBatch | None = None

    def filled_up(self, window: Window) -> Sequence[MicroBatch]:
        """Return the window's micro-batches, as many as the process with the most has."""
        assert window.shared is not None
        missing = max(window.shared.found().counts) - len(window.batches)
        if window.batches:
            self._newest = window.batches[-1]
        return [*window.batches, *(self.one() for _ in range(missing))]

    def one(self) -> MicroBatch:
        """Return a micro-batch to run for nothing.

        Raises:
            DataError: this process has none, and the data is a stream.
        """
        if self._newest is None:
            self._newest = self._first()
        if self._newest is None:
            raise DataError(
                "The stream gave this process no batch at all, and the strategy needs one of every "
                "process. Give the stream more items, or use strategy='ddp'."
            )
        return self._newest
