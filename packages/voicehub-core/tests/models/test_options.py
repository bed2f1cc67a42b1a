"""Options of a call over kept settings: what is replaced, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.errors import ConfigurationError
from voicehub.models.options import with_options
from voicehub.trainer.section import Section


class Drawing(Section):
    temperature: float = Field(default=1.0, ge=0)
    top_k: int | None = None

    @model_validator(mode="after")
    def _draws(self) -> Self:
        if self.temperature == 0 and self.top_k is not None:
            raise ValueError("top_k does nothing at temperature 0")
        return self


def test_options_replace_and_the_rest_stays():
    kept = Drawing(temperature=0.5)
    assert with_options(kept, {"top_k": 3}, "synthesis") == Drawing(temperature=0.5, top_k=3)
    assert kept.top_k is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temprature": 1}, "unknown synthesis option 'temprature'. Did you mean 'temperature'?"),
        ({"sed": 1}, "unknown synthesis option 'sed'. Did you mean 'seed'?"),
        ({"temperature": -1}, "synthesis option temperature: Input should be greater than"),
        ({"temperature": 0, "top_k": 1}, "synthesis option: top_k does nothing"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ConfigurationError) as caught:
        with_options(Drawing(), options, "synthesis", also=("seed",))
    assert message in str(caught.value)
