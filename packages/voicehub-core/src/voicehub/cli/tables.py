"""Plain aligned text tables: readable on a terminal, in a log file and through ``grep``."""

from __future__ import annotations

from collections.abc import Sequence


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, indent: str = "") -> str:
    """Columns padded to their widest cell; columns that hold only numbers are right-aligned."""
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [
        max(len(header), *(len(row[column]) for row in cells)) if cells else len(header)
        for column, header in enumerate(headers)
    ]
    right = [
        bool(rows) and all(isinstance(row[column], (int, float)) for row in rows)
        for column in range(len(headers))
    ]

    def line(values: Sequence[str]) -> str:
        padded = (
            value.rjust(width) if is_right else value.ljust(width)
            for value, width, is_right in zip(values, widths, right, strict=True)
        )
        return f"{indent}{'  '.join(padded)}".rstrip()

    return "\n".join([line(list(headers)), *(line(row) for row in cells)])


def _text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return str(cell)


def duration(seconds: float) -> str:
    """``7 s``, ``3 min 20 s``, ``2 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
