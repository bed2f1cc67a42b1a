"""Walking configuration classes: valid keys, types as a user writes them, real locations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from voicehub.cli.key_paths import all_keys, fields_at, resolve_location, type_name
from voicehub.cli.tables import duration, table
from voicehub.trainer.run_config import RunConfig


@dataclasses.dataclass
class Plain:
    depth: int = 1


class Left(BaseModel):
    kind: Literal["left"]
    angle: float


class Right(BaseModel):
    kind: Literal["right"]
    weight: float = Field(alias="mass")


class Root(BaseModel):
    name: str | None = None
    plain: Plain = Plain()
    turns: list[Annotated[Left | Right, Field(discriminator="kind")]] = []
    named: dict[str, Left] = {}
    pair: tuple[Left, ...] = ()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), {"name", "plain", "turns", "named", "pair"}),
        (("plain",), {"depth"}),
        (("turns", 0), {"kind", "angle", "mass"}),  # either member of the union
        (("named", "anything"), {"kind", "angle"}),
        (("pair", 3), {"kind", "angle"}),
        (("name",), set()),
        (("nowhere", "at", "all"), set()),
    ],
)
def test_fields_at(path: tuple[str | int, ...], expected: set[str]) -> None:
    assert set(fields_at(Root, path)) == expected


def test_keys_of_the_training_arguments_are_found_inside_a_run() -> None:
    assert "learning_rate" in fields_at(RunConfig, ("training",))
    assert "training.learning_rate" in set(all_keys(RunConfig))


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, "int"),
        (str | None, "str | null"),
        (Literal["a", "b"], "'a' | 'b'"),
        (list[int], "list[int]"),
        (dict[str, float], "dict[str, float]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Annotated[float, Field(ge=0)], "float"),
        (Sequence[str], "Sequence[str]"),
        (Left, "a section of keys"),
        (Any, "anything"),
    ],
)
def test_type_names(annotation: Any, expected: str) -> None:
    assert type_name(annotation) == expected


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (("turns", 0, "left", "angel"), ("turns", 0, "angel")),  # 'left' is the union's tag
        (("turns", 0, "left", "angle"), ("turns", 0, "angle")),
        (("name", "str"), ("name",)),  # the member of a union
        (("plain", "depth"), ("plain", "depth")),
        (("missing",), ("missing",)),
    ],
)
def test_locations_lose_what_is_no_key(
    location: tuple[str | int, ...], expected: tuple[str | int, ...]
) -> None:
    values = {"name": "x", "plain": {"depth": 1}, "turns": [{"kind": "left", "angel": 1}]}
    assert resolve_location(values, location) == expected


def test_table_aligns_numbers_right_and_text_left() -> None:
    text = table(("name", "count"), [("a", 5), ("longer", 12345)])
    assert text.splitlines() == ["name     count", "a            5", "longer  12,345"]
    assert table(("only", "headers"), []) == "only  headers"


@pytest.mark.parametrize(
    ("seconds", "text"), [(7.4, "7 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
