"""Field schemas refuse what they cannot mean, and need no tensor library."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from voicehub.data.schema import (
    AudioFieldSchema,
    TTSFieldSchema,
    coerce_field_schemas,
    derived_path,
)


def test_defaults_and_names():
    assert TTSFieldSchema is AudioFieldSchema
    assert dataclasses.asdict(TTSFieldSchema()) == {
        "sequence_dim": 0,
        "padding_value": None,
        "padding_side": "right",
        "length_field": None,
        "mask_field": None,
        "pad_to_multiple_of": None,
        "allow_missing": False,
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        TTSFieldSchema().sequence_dim = 1


@pytest.mark.parametrize(
    "settings",
    [
        {"padding_side": "middle"},
        {"pad_to_multiple_of": 0},
        {"pad_to_multiple_of": -8},
        {"length_field": ""},
        {"mask_field": "a..b"},
        {"mask_field": " "},
        {"length_field": "x", "mask_field": "x"},
    ],
)
def test_values_out_of_range(settings):
    with pytest.raises(ValueError, match="field schema"):
        TTSFieldSchema(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"sequence_dim": 1.0},
        {"sequence_dim": True},
        {"sequence_dim": "0"},
        {"padding_side": 1},
        {"padding_value": "0"},
        {"pad_to_multiple_of": 8.0},
        {"pad_to_multiple_of": True},
        {"length_field": 3},
        {"mask_field": b"m"},
        {"allow_missing": 1},
    ],
)
def test_values_of_the_wrong_type(settings):
    with pytest.raises(TypeError, match=next(iter(settings))):
        TTSFieldSchema(**settings)


def test_schemas_may_be_mappings_and_unknown_settings_are_named():
    schemas = coerce_field_schemas({"mel": {"sequence_dim": 1}, "x": TTSFieldSchema()})
    assert schemas["mel"] == TTSFieldSchema(sequence_dim=1)
    with pytest.raises(ValueError, match="'padding'"):
        coerce_field_schemas({"mel": {"padding": 1}})
    assert coerce_field_schemas(None) == {}


@pytest.mark.parametrize(
    ("schemas", "error"),
    [
        ([("a", {})], TypeError),
        ({1: {}}, TypeError),
        ({"a": 3}, TypeError),
        ({"": {}}, ValueError),
        ({"a..b": {}}, ValueError),
        ({".a": {}}, ValueError),
    ],
)
def test_malformed_collections_of_schemas(schemas, error):
    with pytest.raises(error):
        coerce_field_schemas(schemas)


def test_two_schemas_may_not_write_one_field():
    twice = {"a": {"length_field": "n"}, "b": {"length_field": "n"}}
    with pytest.raises(ValueError, match=r"'b' writes 'n'.*'a'"):
        coerce_field_schemas(twice)
    over_a_source = {"a": {"mask_field": "b"}, "b": {}}
    with pytest.raises(ValueError, match="'a' writes 'b'"):
        coerce_field_schemas(over_a_source)
    apart = {"m.a": {"length_field": "n"}, "k.b": {"length_field": "n"}}
    assert len(coerce_field_schemas(apart)) == 2


def test_derived_names_without_a_dot_sit_beside_their_source():
    assert derived_path("model_inputs.mel", "mel_lengths") == ("model_inputs", "mel_lengths")
    assert derived_path("model_inputs.mel", "lengths.mel") == ("lengths", "mel")
    assert derived_path("mel", "mel_lengths") == ("mel_lengths",)


def test_importing_schemas_imports_no_tensor_library():
    code = (
        "import sys, voicehub.data.schema, voicehub.checkpoints.layout\n"
        "assert not {'torch', 'numpy'} & set(sys.modules), 'a tensor library was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
