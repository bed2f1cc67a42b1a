"""The DET curve (Martin et al. 1997): misses over false alarms, both axes by the normal deviate."""

from __future__ import annotations

from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from voicehub_xvector.metrics.detection import equal_error_rate
from voicehub_xvector.metrics.operating_points import OperatingPoints

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voicehub.trainer.media import Image

TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6)
"""Rates with a line across the picture; both axes run from the first to the last."""

_MOST_CORNERS = 2000


def probit(rate: float) -> float:
    """Normal deviate of a rate, kept inside the picture's range."""
    return NormalDist().inv_cdf(min(max(rate, TICKS[0]), TICKS[-1]))


def det_corners(points: OperatingPoints) -> NDArray[np.float64]:
    """Corners of the curve in the unit square, (n, 2): false alarms to the right, misses up.

    Steps of more than 2,000 corners are thinned, the ends kept.
    """
    miss, alarm = points.miss_rates, points.false_alarm_rates
    kept = np.arange(len(miss))
    if len(kept) > _MOST_CORNERS:
        kept = np.unique(np.linspace(0, len(kept) - 1, _MOST_CORNERS).round().astype(int))
    low, high = probit(TICKS[0]), probit(TICKS[-1])
    axes = [
        [(probit(rate) - low) / (high - low) for rate in rates[kept]] for rates in (alarm, miss)
    ]
    x, y = np.array(axes)
    # From one threshold to the next, first false alarms fall, then misses rise: a staircase.
    corners = np.empty((2 * len(x) - 1, 2))
    corners[::2, 0], corners[::2, 1] = x, y
    corners[1::2, 0], corners[1::2, 1] = x[1:], y[:-1]
    return corners


def _ticks() -> list[tuple[str, float]]:
    low, high = probit(TICKS[0]), probit(TICKS[-1])
    return [(f"{100 * rate:g}", (probit(rate) - low) / (high - low)) for rate in TICKS]


def det_svg(points: OperatingPoints) -> str:
    """The curve as a picture with axes, for a file or a page."""
    left, top, side = 58, 14, 400
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + side + 14} '
        f'{top + side + 46}" font-family="sans-serif" font-size="11" role="img" '
        f'aria-label="DET curve">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for text, place in _ticks():
        x, y = left + side * place, top + side * (1 - place)
        lines.append(
            f'<path d="M{x:.1f} {top}V{top + side}M{left} {y:.1f}H{left + side}" stroke="#ddd"/>'
            f'<text x="{x:.1f}" y="{top + side + 15}" text-anchor="middle">{text}</text>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        )
    places = " ".join(
        f"{left + side * x:.1f},{top + side * (1 - y):.1f}" for x, y in det_corners(points)
    )
    eer = 100 * equal_error_rate(points)
    lines += [
        f'<path d="M{left} {top + side}L{left + side} {top}" stroke="#aaa" '
        f'stroke-dasharray="4 4"/>',
        f'<polyline points="{places}" fill="none" stroke="#1f5fa8" stroke-width="2"/>',
        f'<text x="{left + side / 2}" y="{top + side + 36}" text-anchor="middle">'
        f"false alarms (%)</text>",
        f'<text transform="translate(16 {top + side / 2}) rotate(-90)" text-anchor="middle">'
        f"misses (%)</text>",
        f'<text x="{left + side - 8}" y="{top + 18}" text-anchor="end">EER {eer:.2f} %</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


# Rows of three pixels, the left one the highest bit.
_DIGITS = {
    "0": (7, 5, 5, 5, 7), "1": (2, 6, 2, 2, 7), "2": (7, 1, 7, 4, 7), "3": (7, 1, 7, 1, 7),
    "4": (5, 5, 7, 1, 1), "5": (7, 4, 7, 1, 7), "6": (7, 4, 7, 5, 7), "7": (7, 1, 1, 2, 2),
    "8": (7, 5, 7, 5, 7), "9": (7, 5, 7, 1, 7), ".": (0, 0, 0, 0, 2),
}  # fmt: skip


def det_image(points: OperatingPoints, *, side: int = 400) -> Image:
    """The curve as pixels for reporters, with lines across at :data:`TICKS`, in per cent.

    Args:
        points: of the detector.
        side: pixels of the square; below and left of it are the numbers of the lines.
    """
    from voicehub.trainer.media import Image

    left, below = 32, 18
    canvas = np.full((side + below, left + side, 3), 255, dtype=np.uint8)
    square = canvas[:side, left:]
    for text, place in _ticks():
        position = round(place * (side - 1))
        square[:, position] = square[side - 1 - position, :] = 221
        number = _number(text)
        high, wide = number.shape
        top = min(max(side - 1 - position - high // 2, 0), side + below - high)
        start = min(left + position - wide // 2, left + side - wide)
        canvas[top : top + high, left - 4 - wide : left - 4][number] = 60
        canvas[side + 4 : side + 4 + high, start : start + wide][number] = 60
    dashes = [n for n in range(side) if n // 5 % 2 == 0]
    square[[side - 1 - n for n in dashes], dashes] = 150
    corners = det_corners(points) * (side - 1)
    for begin, end in pairwise(corners):
        steps = max(1, int(np.abs(end - begin).max()) + 1)
        along = begin + np.linspace(0, 1, steps + 1)[:, None] * (end - begin)
        columns, rows = along.round().astype(int).T
        for shift in (0, 1):  # two pixels wide
            square[np.clip(side - 1 - rows - shift, 0, side - 1), columns] = (31, 95, 168)
    return Image(canvas)


def _number(text: str) -> NDArray[np.bool_]:
    """A number as a mask of pixels, each drawn twice as large."""
    columns = []
    for character in text:
        rows = _DIGITS[character]
        columns.append([[row >> bit & 1 for bit in (2, 1, 0)] for row in rows])
        columns.append([[0]] * len(rows))
    small = np.concatenate([np.array(part, dtype=bool) for part in columns[:-1]], axis=1)
    return np.kron(small, np.ones((2, 2), dtype=bool))
