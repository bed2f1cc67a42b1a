"""Support levels are coerced from the spellings that users write."""

from __future__ import annotations

import pytest

from voicehub.specs.support import TrainingSupport


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("native", "native"),
        (" Native ", "native"),
        ("source_native", "native"),
        ("backend-native", "native"),
        ("PREPROCESSED", "preprocessed"),
        ("custom", "custom"),
        ("inference_only", "inference-only"),
        ("inference", "inference-only"),
        ("InferenceOnly", "inference-only"),
        (TrainingSupport.CUSTOM, "custom"),
    ],
)
def test_coerce(value, level):
    assert TrainingSupport.coerce(value).value == level


def test_unknown_level_names_the_nearest():
    with pytest.raises(ValueError, match=r"Unknown training support.*Did you mean 'native'"):
        TrainingSupport.coerce("natve")


@pytest.mark.parametrize("value", [None, 1, ["native"]])
def test_other_types_are_type_errors(value):
    with pytest.raises(TypeError):
        TrainingSupport.coerce(value)


@pytest.mark.parametrize(
    ("level", "turnkey", "trainable"),
    [
        ("native", True, True),
        ("preprocessed", True, True),
        ("custom", False, True),
        ("inference-only", False, False),
    ],
)
def test_what_each_level_promises(level, turnkey, trainable):
    support = TrainingSupport(level)
    assert support.is_turnkey is turnkey
    assert support.is_trainable is trainable
