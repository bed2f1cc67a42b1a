"""The DET curve and its pictures."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from voicehub_xvector.metrics import operating_points
from voicehub_xvector.metrics.det import det_corners, det_image, det_svg, probit


def gaussian(count=4000):
    generator = np.random.default_rng(0)
    labels = np.arange(count) < count // 2
    return operating_points(generator.normal(size=count) + 2.0 * labels, labels)


def test_gaussian_scores_lie_on_a_falling_straight_line():
    corners = det_corners(gaussian())
    low, high = probit(0.001), probit(0.6)
    deviates = low + corners * (high - low)
    middle = (deviates[:, 0] > probit(0.02)) & (deviates[:, 1] > probit(0.02))
    assert middle.sum() > 100
    assert deviates[middle].sum(1) == pytest.approx(-2.0, abs=0.15)


def test_the_curve_is_a_staircase_from_all_alarms_to_all_misses():
    corners = det_corners(operating_points([0, 1, 2, 3], [0, 1, 0, 1]))
    steps = np.diff(corners, axis=0)
    assert (
        ((steps == 0).any(axis=1)).all() and (steps[:, 0] <= 0).all() and (steps[:, 1] >= 0).all()
    )
    assert corners[0].tolist() == [1, 0] and corners[-1].tolist() == [0, 1]


def test_the_file_is_xml_with_the_error_rate_and_a_tick_for_each_rate():
    picture = det_svg(operating_points([0, 1, 2, 3], [0, 1, 0, 1]))
    ElementTree.fromstring(picture)
    assert "EER 50.00 %" in picture or re.search(r"EER \d+\.\d\d %", picture)
    assert picture.count(">0.1<") == 2 and picture.count(">40<") == 2


def test_the_pixels_show_the_curve_where_it_is_and_the_numbers_beside():
    image = det_image(gaussian(), side=200).array
    assert image.shape == (218, 232, 3)
    square = image[:200, 32:]
    blue = np.argwhere((square == (31, 95, 168)).all(axis=2))
    assert len(blue) > 200
    # On the diagonal the curve is at EER = Phi(-1) = 15.9 %.
    place = 199 * (probit(0.159) - probit(0.001)) / (probit(0.6) - probit(0.001))
    on_diagonal = min(blue, key=lambda p: abs((199 - p[0]) - p[1]))
    assert on_diagonal[1] == pytest.approx(place, abs=6)
    for margin in (image[:, :32], image[200:, 32:]):
        assert ((margin == 60).all(axis=2)).sum() > 300 and not (margin == (31, 95, 168)).all(
            2
        ).any()
