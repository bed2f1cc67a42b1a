"""The table of a report that says what a family's figures mean, and which of them decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from voicehub.reporting import figures

if TYPE_CHECKING:
    from voicehub.adapters.experiment import FigureNote


def notes_html(notes: Sequence[FigureNote], rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of the figures that were logged, with their last values; empty without notes."""
    last: dict[str, tuple[str, float]] = {}
    for row in rows:
        for key, value in row.items():
            if isinstance(value, (int, float)):
                for note in notes:
                    if note.is_of(key):
                        last[note.key] = (key, float(value))
    cells = "".join(_row_html(note, last[note.key]) for note in notes if note.key in last)
    if not cells:
        return ""
    head = "<tr><th>figure</th><th>last</th><th>what it is</th><th>in a healthy run</th></tr>"
    decisive = ", ".join(note.name for note in notes if note.decides and note.key in last)
    told = f'<p class="soft">What decides: {escape(decisive)}.</p>' if decisive else ""
    return f'{told}<div class="card"><table>{head}{cells}</table></div>'


def _row_html(note: FigureNote, last: tuple[str, float]) -> str:
    name = f"<b>{escape(note.name)}</b>" if note.decides else escape(note.name)
    value = figures.number(*last)
    return (
        f'<tr><td>{name}</td><td class="number">{escape(value)}</td>'
        f"<td>{escape(note.meaning)}</td><td>{escape(note.band)}</td></tr>"
    )
