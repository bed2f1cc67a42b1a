"""Filters: bounds, reasons, and the sum that always holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicehub.errors import DataError
from voicehub_data.config import FilterConfig
from voicehub_data.filters import (
    DurationFilter,
    EmptyTextFilter,
    SpeechRateFilter,
    filter_rows,
    filter_split,
)
from voicehub_data.manifest import ManifestRow


def row(text="hello", duration=1.0, number=1):
    return ManifestRow(f"r{number}", Path("/a.wav"), text, duration, source=Path("m"), row=number)


def test_a_segment_of_exactly_the_limit_is_kept_whatever_subtraction_makes_of_it():
    assert 1.2 - 0.4 < 0.8
    cut = [place / 10 + length - place / 10 for place in range(400) for length in (0.8, 19.0)]
    rule = DurationFilter(0.8, 19.0)
    assert all(rule.reason(row(duration=seconds)) is None for seconds in (1.2 - 0.4, *cut))
    for seconds, reason in ((0.799, "too_short"), (0.79999, "too_short"), (19.001, "too_long")):
        assert rule.reason(row(duration=seconds)) == reason


def test_bounds_are_kept():
    rule = DurationFilter(0.5, 2.0)
    durations = [0.49, 0.5, 2.0, 2.01]
    reasons = [rule.reason(row(duration=value)) for value in durations]
    assert reasons == ["too_short", None, None, "too_long"]


def test_rate_of_speech_ignores_white_space():
    rule = SpeechRateFilter(2.0, 4.0)
    texts = ["a", "a b", "a b c d", "abcde"]
    reasons = [rule.reason(row(text)) for text in texts]
    assert reasons == ["speech_too_slow", None, None, "speech_too_fast"]


def test_first_reason_counts():
    rows = [row("", 9.0), row("a", 9.0), row("hello", 1.0)]
    result = filter_rows(rows, EmptyTextFilter(), DurationFilter(max_duration=2.0))
    assert result.counts == {"empty_text": 1, "too_long": 1}
    assert result.describe() == "kept 1 of 3 rows; dropped 1 empty_text, 1 too_long"


def test_unknown_duration_is_an_error():
    with pytest.raises(DataError, match="row 1 .*fill_durations"):
        filter_rows([row(duration=None)], DurationFilter(1.0))
    assert len(filter_rows([row(duration=None)], EmptyTextFilter()).kept) == 1


@given(
    st.lists(
        st.tuples(st.text("ab ", max_size=6), st.floats(0.01, 30, allow_nan=False)), max_size=30
    ),
    st.floats(0, 5),
    st.floats(5, 30),
)
def test_kept_and_dropped_make_the_total(rows, low, high):
    built = [row(text, duration, i) for i, (text, duration) in enumerate(rows)]
    result = filter_rows(built, EmptyTextFilter(), DurationFilter(low, high), SpeechRateFilter(1))
    assert len(result.kept) + sum(result.counts.values()) == result.total == len(built)
    sides = [item.id for item in result.kept]
    sides += [item.id for group in result.dropped.values() for item in group]
    assert sorted(sides) == sorted(item.id for item in built)


class TestSplits:
    rows = (row("", 0.01, 1), row("hello", 1.0, 2), row("hello", 90.0, 3))

    def test_evaluation_is_left_alone(self):
        config = FilterConfig(max_duration=10, max_drop_fraction=0)
        assert filter_split(self.rows, config, training=False).kept == list(self.rows)

    def test_unless_asked_for(self):
        config = FilterConfig(max_duration=10, max_drop_fraction=1, apply_to_eval=True)
        assert len(filter_split(self.rows, config, training=False).kept) == 1

    def test_limit(self):
        config = FilterConfig(max_duration=10, max_drop_fraction=0.5)
        with pytest.raises(DataError) as error:
            filter_split(self.rows, config, training=True)
        for words in ("2 of 3 rows", "1 empty_text, e.g. row 1", "1 too_long", "max_drop_fraction"):
            assert words in str(error.value)

    def test_nothing_left(self):
        config = FilterConfig(min_duration=100, max_drop_fraction=1)
        with pytest.raises(DataError, match="every row was dropped"):
            filter_split(self.rows, config, training=True)
