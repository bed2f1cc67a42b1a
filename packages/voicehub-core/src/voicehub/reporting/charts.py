"""Line charts as inline SVG: no script, no font and no file from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 30
_MAX_POINTS = 500
_COLOURS = 6  # CSS classes s0 ... s5


@dataclass(frozen=True)
class Series:
    """A named curve; ``points`` are (step, value) with values that may be not finite (gaps)."""

    name: str
    points: Sequence[tuple[float, float]]


def line_chart(title: str, series: Sequence[Series], *, percent: bool = False) -> str:
    """A figure with one curve for each series, or an empty text when none has two points.

    Args:
        title: shown above the chart.
        series: curves over training steps.
        percent: write the values of the vertical axis as percentages.
    """
    curves = [s for s in series if sum(math.isfinite(value) for _, value in s.points) >= 2]
    if not curves:
        return ""
    finite = [(x, y) for s in curves for x, y in s.points if math.isfinite(y)]
    x_axis = _Axis.over([x for x, _ in finite], _LEFT, _WIDTH - _RIGHT, padded=False)
    y_axis = _Axis.over([y for _, y in finite], _HEIGHT - _BOTTOM, _TOP, padded=True)
    parts = [*_grid(x_axis, y_axis, percent)]
    for index, curve in enumerate(curves):
        parts.append(_curve(curve, f"s{index % _COLOURS}", x_axis, y_axis, percent))
    label = escape(title, quote=True)
    legend = "".join(
        f'<span class="key s{index % _COLOURS}"><i></i>{escape(curve.name)}</span>'
        for index, curve in enumerate(curves)
        if len(curves) > 1  # one curve is what the title says
    )
    head = f'<figcaption><b>{label}</b><span class="legend">{legend}</span></figcaption>'
    return (
        f'<figure class="chart">{head}<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg></figure>'
    )


@dataclass(frozen=True)
class _Axis:
    """Maps values between ``low`` and ``high`` to pixels between ``start`` and ``end``."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, *, padded: bool) -> _Axis:
        low, high = min(values), max(values)
        if padded or high == low:
            margin = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
            # A curve of errors or losses never dips below zero; neither should its axis.
            low, high = (max(0.0, low - margin) if low >= 0 else low - margin), high + margin
        return cls(low, high, start, end)

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int) -> list[float]:
        """At most about ``count`` round values inside the axis."""
        raw = (self.high - self.low) / count
        magnitude = 10.0 ** math.floor(math.log10(raw))
        step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def _grid(x_axis: _Axis, y_axis: _Axis, percent: bool) -> list[str]:
    parts = []
    for value in y_axis.ticks(5):
        y = y_axis.at(value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{_tick(value, percent)}</text>"
        )
    for value in x_axis.ticks(6):
        x = x_axis.at(value)
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{_tick(value)}</text>'
        )
    return parts


def _curve(curve: Series, style: str, x_axis: _Axis, y_axis: _Axis, percent: bool) -> str:
    points = _thinned(curve.points)
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if math.isfinite(y):
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])  # a gap: the curve stops where the value was not finite
    parts = []
    for run in runs:
        if run:
            path = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in run)
            parts.append(f'<polyline class="line {style}" points="{path}"/>')
    marked = points if len(points) <= 60 else points[-1:]
    for x, y in marked:
        if math.isfinite(y):
            title = escape(f"{curve.name}, step {_tick(x)}: {_tick(y, percent)}")
            parts.append(
                f'<circle class="dot {style}" cx="{x_axis.at(x):.1f}" cy="{y_axis.at(y):.1f}" '
                f'r="2.6"><title>{title}</title></circle>'
            )
    return "".join(parts)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most ``_MAX_POINTS``: of each bucket the lowest and the highest, so spikes stay seen."""
    if len(points) <= _MAX_POINTS:
        return list(points)
    size = math.ceil(len(points) / (_MAX_POINTS // 2))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        bucket = points[start : start + size]
        finite = [point for point in bucket if math.isfinite(point[1])] or list(bucket[:1])
        extremes = {min(finite, key=lambda p: p[1]), max(finite, key=lambda p: p[1])}
        kept += sorted(extremes)
    return kept


def _tick(value: float, percent: bool = False) -> str:
    if percent:
        return f"{100 * value:.3g} %"
    if value == 0:
        return "0"
    if abs(value) >= 1000 and float(value).is_integer():
        return f"{int(value):,}"
    if abs(value) < 1e-3:
        return f"{value:.1e}".replace("e-0", "e-")
    return f"{value:.4g}"
