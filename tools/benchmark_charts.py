"""A bar for each system, as an SVG file that follows the reader's light or dark setting."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.results import Measure

_WIDTH, _ROW, _BAR = 640, 26, 16
_TOP, _NAMES, _FIGURES = 34, 210, 120
_CHARACTER = 7
_SPREAD = 100.0
"""Values that lie further apart than this are drawn on a logarithmic scale."""

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1b2230; }
.soft { fill: #5c6678; font-size: 12px; }
.bar { fill: #9aa7bd; } .ours { fill: #2f6fed; } .line { stroke: #9aa7bd; stroke-dasharray: 3 3; }
@media (prefers-color-scheme: dark) {
  text { fill: #e7ebf2; } .soft { fill: #98a3b5; } .bar { fill: #54617a; } .ours { fill: #7aa7ff; }
}
"""


def bar_chart(measure: Measure) -> str:
    """Draw the values of a measure; the dashed line, which no figure is written on, is its
    baseline."""
    from harness.results import OURS

    values = [row.value for row in measure.rows]
    scale = _Scale(values)
    height = _TOP + _ROW * len(measure.rows) + 8
    side = "more is better" if measure.better == "higher" else "less is better"
    head = f"{measure.quantity}, {measure.unit}"
    note = f"{side}, logarithmic" if scale.logarithmic else side
    parts = [
        f'<text x="0" y="16">{escape(head)}</text>',
        f'<text x="{_WIDTH}" y="16" class="soft" text-anchor="end">{note}</text>',
    ]
    base = next(row.value for row in measure.rows if row.system == measure.baseline)
    line = _NAMES + scale.length(base)
    for number, row in enumerate(measure.rows):
        top = _TOP + number * _ROW
        middle, length = top + _BAR - 4, scale.length(row.value)
        kind = "ours" if row.system.startswith(OURS) else "bar"
        figure, start = f"{_number(row.value)} ({row.ratio:.3g}x)", _NAMES + length + 6
        if not start - 3 < line < start + _CHARACTER * len(figure):
            parts.append(_line(line, top - 5, top + _ROW - 5))
        parts += [
            f'<text x="{_NAMES - 8}" y="{middle}" text-anchor="end">{escape(row.system)}</text>',
            f'<rect class="{kind}" x="{_NAMES}" y="{top}" width="{length:.1f}" height="{_BAR}" '
            'rx="2"/>',
            f'<text class="soft" x="{start:.1f}" y="{middle}">{figure}</text>',
        ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-label="{escape(head, quote=True)}">'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _line(x: float, top: float, bottom: float) -> str:
    return f'<line class="line" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'


class _Scale:
    """From a value to the length of its bar."""

    def __init__(self, values: list[float]) -> None:
        positive = [value for value in values if value > 0]
        self.most = max(positive, default=1.0)
        self.least = min(positive, default=1.0)
        self.logarithmic = self.most / self.least > _SPREAD
        self.room = _WIDTH - _NAMES - _FIGURES

    def length(self, value: float) -> float:
        if value <= 0:
            return 0.0
        if not self.logarithmic:
            return self.room * value / self.most
        low = math.log(self.least) - 0.5
        return self.room * (math.log(value) - low) / (math.log(self.most) - low)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
