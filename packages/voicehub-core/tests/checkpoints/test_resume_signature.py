"""Signatures differ by entry, with both values."""

from __future__ import annotations

import pytest

from voicehub.checkpoints.signature import compare_signatures, describe

BASE = {
    "data": {"seed": 1, "batch": [8, 4], "none": None},
    "schedule": {"max_steps": 2, "warmup": {"default": 0}},
    "precision": {"bf16": False},
}


def test_equal_signatures_differ_nowhere():
    tuples = {**BASE, "data": {"none": None, "batch": (8, 4), "seed": 1}}
    assert compare_signatures(BASE, tuples) == []
    assert compare_signatures({"x": float("nan")}, {"x": float("nan")}) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"schedule": {"max_steps": 3, "warmup": {"default": 0}}},
            "schedule.max_steps: checkpoint=2, current=3",
        ),
        (
            {"schedule": {"max_steps": 2, "warmup": {}}},
            "schedule.warmup.default: checkpoint=0, current=(absent)",
        ),
        ({"new": 1}, "new: checkpoint=(absent), current=1"),
        ({"data": {**BASE["data"], "batch": [8, 2]}}, "data.batch[1]: checkpoint=4, current=2"),
        ({"data": {**BASE["data"], "batch": [8]}}, "data.batch: checkpoint=[8, 4], current=[8]"),
        ({"data": {**BASE["data"], "none": 0}}, "data.none: checkpoint=None, current=0"),
        ({"precision": {"bf16": 0}}, "precision.bf16: checkpoint=False, current=0"),
        ({"precision": None}, "precision: checkpoint={'bf16': False}, current=None"),
        ({"data": {**BASE["data"], "seed": 1.0}}, "data.seed: checkpoint=1, current=1.0"),
    ],
)
def test_each_difference_is_named_with_both_values(change, line):
    assert describe(compare_signatures(BASE, {**BASE, **change})) == line


def test_long_lists_are_cut_and_say_so():
    saved, current = ({f"k{i}": i + offset for i in range(12)} for offset in (0, 1))
    lines = describe(compare_signatures(saved, current)).splitlines()
    assert len(lines) == 9
    assert lines[-1] == "and 4 more"
