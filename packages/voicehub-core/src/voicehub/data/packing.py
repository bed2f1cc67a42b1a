"""Several samples in a row."""

from __future__ import annotations

from collections.abc import Sequence


def pack_lengths(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Share samples out among rows of at most ``capacity`` steps, first fit, longest first.

    A sample over the capacity gets a row of its own. Rows list positions in ``lengths``; the
    result depends on the lengths alone.
    """
    rows: list[list[int]] = []
    room: list[int] = []
    for item in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        for row, free in enumerate(room):
            if lengths[item] <= free:
                rows[row].append(item)
                room[row] -= lengths[item]
                break
        else:
            rows.append([item])
            room.append(capacity - lengths[item])
    return rows
