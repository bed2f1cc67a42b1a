"""Rows in shared blocks of memory read like a list."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from voicehub.data.packed_rows import PackedRows


@dataclass(frozen=True)
class Row:
    id: str
    path: Path
    duration: float | None = None


def test_rows_read_like_a_list() -> None:
    rows = [Row(f"u{n}", Path(f"/x/{n}.wav"), n / 2 if n % 2 else None) for n in range(50)]
    packed = PackedRows(rows)
    assert len(packed) == 50
    assert list(packed) == rows
    assert packed[-1] == rows[-1]
    assert packed[3:9:2] == rows[3:9:2]
    assert rows[7] in packed
    for index in (50, -51):
        with pytest.raises(IndexError, match="of 50"):
            packed[index]


def test_a_row_that_is_changed_stays_as_it_was() -> None:
    packed = PackedRows([{"text": "one"}])
    packed[0]["text"] = "two"
    assert packed[0] == {"text": "one"}


def test_no_rows_are_an_empty_sequence() -> None:
    assert list(PackedRows([])) == []
