"""Configuration: unknown keys, wrong values, and the short ways to name sources."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from voicehub.errors import ConfigurationError
from voicehub_data.config import (
    AugmentConfig,
    BatchConfig,
    DataSource,
    DataSourceConfig,
    DataSources,
    FilterConfig,
    LoaderConfig,
    NamedDataSources,
)


class Holder(BaseModel):
    model_config = ConfigDict(extra="forbid")

    one: DataSource = DataSourceConfig(path="x")
    train: DataSources = [DataSourceConfig(path="x")]
    evaluation: NamedDataSources = {}


def test_a_path_stands_for_a_source():
    holder = Holder.model_validate({"one": "a.jsonl", "train": "b.jsonl", "evaluation": "c.jsonl"})
    assert holder.one.path == "a.jsonl"
    assert [source.path for source in holder.train] == ["b.jsonl"]
    assert {name: s.path for name, s in holder.evaluation.items()} == {"eval": "c.jsonl"}


def test_lists_mappings_and_names():
    holder = Holder.model_validate(
        {
            "train": ["a.jsonl", {"path": "b", "kind": "kaldi"}],
            "evaluation": {"clean": "c.jsonl", "other": {"path": "d.csv"}},
        }
    )
    assert [source.kind for source in holder.train] == ["auto", "kaldi"]
    assert list(holder.evaluation) == ["clean", "other"]
    listed = Holder.model_validate({"evaluation": ["x/test clean.jsonl", {"path": "dev.csv"}]})
    assert list(listed.evaluation) == ["test_clean", "dev"]
    single = Holder.model_validate({"evaluation": {"path": "d.csv", "kind": "csv"}})
    assert {name: s.kind for name, s in single.evaluation.items()} == {"eval": "csv"}
    assert Holder.model_validate({"evaluation": None}).evaluation == {}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"evaluation": ["a/test.jsonl", "b/test.jsonl"]}, "would be named 'test'"),
        ({"evaluation": 3}, "expected a path"),
        ({"train": []}, "at least 1 item"),
        ({"one": {"path": " "}}, "empty text"),
    ],
)
def test_bad_sources(values, words):
    with pytest.raises(ValidationError, match=words):
        Holder.model_validate(values)


@pytest.mark.parametrize(
    ("model", "values", "words"),
    [
        (DataSourceConfig, {"path": "a", "colum_map": {}}, "Did you mean 'column_map'?"),
        (
            DataSourceConfig,
            {"path": "a", "kind": "nemo"},
            "kind: unknown.*Kinds are auto, jsonl.*'nemo'",
        ),
        (DataSourceConfig, {}, "path: Field required"),
        (DataSourceConfig, {"path": "a", "max_eval_samples_per_dataset": 0}, "greater than 0"),
        (FilterConfig, {"max_durations": 3}, "Did you mean 'max_duration'?"),
        (FilterConfig, {"min_duration": 3, "max_duration": 2}, "min_duration 3 is over"),
        (FilterConfig, {"max_drop_fraction": 1.5}, "less than or equal to 1"),
        (AugmentConfig, {"gain": {"decibels": [3, -3]}}, "low <= high"),
        (AugmentConfig, {"gain": {"decibel": [0, 3]}}, "unknown key 'gain.decibel'"),
        (AugmentConfig, {"speed": {"factors": [0.1]}}, "between 0.5 and 2"),
        (AugmentConfig, {"noise": {}}, "noise.folder: Field required"),
        (BatchConfig, {"batch_size": 4, "max_padded_seconds": 60}, "exclude each other"),
        (BatchConfig, {"max_padded_seconds": 60, "drop_last": True}, "batch_size only"),
        (BatchConfig, {"batch_size": 4, "num_buckets": 8}, "apply to max_padded_seconds only"),
        (LoaderConfig, {"num_workers": -1}, "greater than or equal to 0"),
    ],
)
def test_messages_name_the_key(model, values, words):
    with pytest.raises(ConfigurationError, match=words):
        model.load(values)


def test_defaults_load():
    for model in (FilterConfig, AugmentConfig, BatchConfig, LoaderConfig):
        assert model.load({}) == model()
