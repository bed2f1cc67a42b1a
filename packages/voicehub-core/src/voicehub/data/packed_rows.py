"""Rows of a large dataset in a few blocks of memory, for worker processes to share."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

import numpy as np

RowT = TypeVar("RowT")


class PackedRows(Sequence[RowT]):
    """An immutable sequence that holds its rows as bytes and makes an object of a row when asked.

    Worker processes share the memory of the main process until one of them writes to it, and
    reading a Python object writes to it: its count of references. A list of 100,000 rows is
    thereby copied into every worker, page by page, while training goes on. Two arrays are not.
    Reading a row costs a few microseconds, and what is returned is a copy.

    Args:
        rows: anything that can be pickled, such as dicts and dataclasses. The bytes never leave
            this program and its workers.
    """

    def __init__(self, rows: Iterable[RowT]) -> None:
        packed = [pickle.dumps(row, pickle.HIGHEST_PROTOCOL) for row in rows]
        self._ends = np.cumsum([len(row) for row in packed], dtype=np.int64)
        self._bytes = np.frombuffer(b"".join(packed), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> RowT: ...
    @overload
    def __getitem__(self, index: slice) -> list[RowT]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """A row, or a list of rows for a slice."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        start = int(self._ends[number - 1]) if number else 0
        return pickle.loads(self._bytes[start : int(self._ends[number])].data)

    def __repr__(self) -> str:
        return f"PackedRows({len(self)} rows, {self._bytes.nbytes:,} bytes)"
