"""Rows that are not wanted: by value or number, and never by a rule that does nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.config import DataSourceConfig, ExcludeRule, FilterConfig
from voicehub_data.exclusion import exclude_rows
from voicehub_data.manifest import ManifestRow
from voicehub_data.splits import read_split


def rows(*extras):
    return [
        ManifestRow(f"u{i}", Path(f"{i}.wav"), "hello", 1.0 + i, speaker=f"s{i}", extra=extra)
        for i, extra in enumerate(extras)
    ]


def kept(data, *rules):
    return [row.id for row in exclude_rows(data, [ExcludeRule.load(rule) for rule in rules]).kept]


VOTES = rows({"down": 0, "kind": "read"}, {"down": 2, "kind": "song"}, {"down": "3"}, {"kind": ""})


@pytest.mark.parametrize(
    ("rule", "ids"),
    [
        ({"column": "down", "above": 0}, ["u0", "u3"]),
        ({"column": "down", "above": 2}, ["u0", "u1", "u3"]),
        ({"column": "down", "below": 2}, ["u1", "u2", "u3"]),
        ({"column": "down", "below": 1, "above": 2}, ["u1", "u3"]),
        ({"column": "kind", "values": ["song"]}, ["u0", "u2", "u3"]),
        ({"column": "down", "values": [3]}, ["u0", "u1", "u3"]),
        ({"column": "duration", "above": 3}, ["u0", "u1", "u2"]),
        ({"column": "speaker", "values": ["s1", "s2"]}, ["u0", "u3"]),
    ],
)
def test_one_rule(rule, ids):
    assert kept(VOTES, rule) == ids


def test_a_row_goes_under_the_first_rule_and_all_are_counted():
    rules = [
        ExcludeRule(column="down", above=0),
        ExcludeRule(column="kind", values=["song", "read"]),
    ]
    result = exclude_rows(VOTES, rules)
    assert result.counts == {
        "excluded: down above 0": 2,
        "excluded: kind one of 'song', 'read'": 1,
    }
    assert len(result.kept) + result.num_dropped == len(VOTES)


def test_booleans_are_no_numbers():
    data = rows({"bad": True}, {"bad": False}, {"bad": 1})
    assert kept(data, {"column": "bad", "values": [True]}) == ["u1", "u2"]
    with pytest.raises(DataError, match=r"id 'u0'.*compares bad with a number.*True"):
        kept(data, {"column": "bad", "above": 0})


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"column": "donw", "above": 0}, r"no row has a column 'donw'. Did you mean 'down'\?"),
        ({"column": "down", "above": 5}, "no row has down above 5, so the rule does nothing"),
        ({"column": "kind", "values": ["sing"]}, "column holds 'read', 'song'"),
    ],
)
def test_a_rule_that_does_nothing_is_refused(rule, words):
    with pytest.raises(ConfigurationError, match=words):
        kept(VOTES, rule)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"column": "a"}, "nothing is said of 'a'"),
        ({"column": "a", "values": []}, "values of 'a' is empty"),
        ({"column": "a", "abvoe": 3}, "abvoe"),
    ],
)
def test_rules_must_say_something(rule, words):
    with pytest.raises(ConfigurationError, match=words):
        ExcludeRule.load(rule)


def test_text_is_no_number():
    with pytest.raises(DataError, match=r"id 'u0'.*'much'"):
        kept(rows({"noise": "much"}), {"column": "noise", "above": 1})


class TestSplit:
    settings = SimpleNamespace(
        check="decode", workers=0, max_drop_fraction=0.4, filters=FilterConfig()
    )

    def read(self, path, **changes):
        settings = SimpleNamespace(**{**vars(self.settings), **changes})
        return read_split(
            "train",
            [DataSourceConfig(path=str(path))],
            settings,
            training=True,
            sample_rate=16000,
            exclude=[ExcludeRule(column="votes", above=0)],
        )

    def manifest(self, write_jsonl, write_audio):
        write_audio("good.wav", 1.0)
        data = [{"audio_filepath": "good.wav", "text": "a", "id": f"g{i}"} for i in range(2)]
        # What is excluded is never opened: these files do not exist.
        data += [
            {"audio_filepath": "none.wav", "text": "a", "id": f"x{i}", "votes": 1} for i in range(4)
        ]
        return write_jsonl([*data, {"audio_filepath": "lost.wav", "text": "a", "id": "lost"}])

    def test_excluded_rows_are_apart_from_the_limit(self, write_jsonl, write_audio):
        split = self.read(self.manifest(write_jsonl, write_audio))
        assert [row.id for row in split.rows] == ["g0", "g1"]
        assert split.excluded == {"excluded: votes above 0": 4}
        assert split.dropped == {"missing-file": 1}
        assert split.wanted == 3
        assert len(split.rows) + split.excluded.total() + split.dropped.total() == split.total

    def test_the_limit_is_a_share_of_what_is_wanted(self, write_jsonl, write_audio):
        path = self.manifest(write_jsonl, write_audio)
        with pytest.raises(DataError, match="1 of 3 rows are unusable"):
            self.read(path, max_drop_fraction=0.3)
