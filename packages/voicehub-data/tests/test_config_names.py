"""Names of normalisers and model types are checked with the configuration."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from voicehub_data.config.names import ModelTypeName, NormalizerName


def test_known_names_pass() -> None:
    assert TypeAdapter(NormalizerName).validate_python("english") == "english"
    assert TypeAdapter(ModelTypeName).validate_python("example-denoiser") == "example-denoiser"


@pytest.mark.parametrize(
    ("kind", "wrong", "near"),
    [(NormalizerName, "englsh", "english"), (ModelTypeName, "example-denoisr", "example-denoiser")],
)
def test_a_misspelt_name_gets_the_nearest(kind: object, wrong: str, near: str) -> None:
    with pytest.raises(ValidationError, match=f"Did you mean '{near}'"):
        TypeAdapter(kind).validate_python(wrong)
