"""A window that was read ahead is the next one, and its trouble comes when it is taken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from voicehub.errors import DataError
from voicehub.trainer.micro_batch import MicroBatch
from voicehub.trainer.read_ahead import ReadAhead


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_reading_ahead_changes_neither_order_nor_end(ahead: int) -> None:
    windows = [[MicroBatch({}, {}, size, None)] for size in (1, 2)]
    reading = ReadAhead(iter(windows))
    taken = []
    for _ in range(3):
        for _ in range(ahead):
            reading.read()
        taken.append(reading.take())
    assert taken == [(windows[0], None), (windows[1], None), ([], None)]


def test_what_reading_raises_is_kept_for_the_one_who_takes() -> None:
    def windows() -> Iterator[list[MicroBatch]]:
        yield []
        raise DataError("clip 3 cannot be decoded")

    reading = ReadAhead(windows())
    reading.take()
    reading.read()
    batches, problem = reading.take()
    assert batches == []
    assert isinstance(problem, DataError)
