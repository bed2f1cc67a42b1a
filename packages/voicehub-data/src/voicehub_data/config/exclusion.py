"""Rows that a configuration does not want, by what their columns say."""

from __future__ import annotations

from pydantic import model_validator
from typing_extensions import Self

from voicehub_data.config.base import DataModel


class ExcludeRule(DataModel):
    """Leave out rows by one column; a row without a value there is kept.

    Attributes:
        column: a field of the row (``text, duration, speaker, language, id``) or any other column
            of the source.
        values: leave out rows that hold one of these; ``true`` and ``1`` are different values.
        above, below: leave out rows whose number is over, or under, this one.
    """

    column: str
    values: list[bool | int | float | str] | None = None
    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.values is None and self.above is None and self.below is None:
            raise ValueError(f"nothing is said of {self.column!r}: give values, above or below")
        if self.values == []:
            raise ValueError(f"values of {self.column!r} is empty; name at least one")
        return self

    def describe(self) -> str:
        """``down_votes above 0``."""
        parts = [
            f"{word} {value:g}"
            for word, value in (("above", self.above), ("below", self.below))
            if value is not None
        ]
        if self.values is not None:
            parts.insert(0, "one of " + ", ".join(map(repr, self.values)))
        return f"{self.column} {' or '.join(parts)}"
