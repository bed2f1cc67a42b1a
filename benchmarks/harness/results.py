"""The layout of ``benchmarks/results.json``: strict, so that page and figures agree."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

VERSION = 1
OURS = "voicehub"

Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Strict):
    """One system.

    Attributes:
        system: its name; ours begins with ``voicehub``.
        value: median over the rounds, in the measure's unit.
        ratio: of the value to the baseline's, or the median of ratios within rounds.
        rounds: the value of every round, where they were kept.
    """

    system: str
    value: Finite
    ratio: Finite
    rounds: list[Finite] = []


class Measure(_Strict):
    """One quantity of all systems.

    Attributes:
        quantity: what was measured, such as "CPU time a step".
        unit: of the values.
        baseline: the system that ratios are to.
        better: which side is better.
        rows: the systems.
    """

    quantity: str
    unit: str
    baseline: str
    better: Literal["lower", "higher"] = "lower"
    rows: list[Row] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_its_baseline(self) -> Self:
        names = [row.system for row in self.rows]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.quantity}: a system stands there twice: {names}")
        if self.baseline not in names:
            raise ValueError(f"{self.quantity}: the baseline {self.baseline!r} is not in {names}")
        return self

    @classmethod
    def of(
        cls, quantity: str, unit: str, values: dict[str, float], baseline: str, **options: Any
    ) -> Measure:
        """Make one from a value a system; ratios are those of the values.

        Args:
            quantity, unit, values, baseline: as the attributes.
            options: ``better``, ``rounds`` (by system) and ``ratios`` (by system, where they are
                not those of the values).
        """
        rounds, ratios = options.pop("rounds", {}), options.pop("ratios", {})
        base = values[baseline]
        rows = [
            Row(
                system=name,
                value=rounded(value),
                ratio=rounded(ratios.get(name, value / base if base else 1.0)),
                rounds=[rounded(one) for one in rounds.get(name, ())],
            )
            for name, value in values.items()
        ]
        return cls(quantity=quantity, unit=unit, baseline=baseline, rows=rows, **options)


class Load(_Strict):
    """What else the machine did: processes that ran or waited, one minute's mean; cores."""

    before: Finite
    after: Finite
    cores: int


class Case(_Strict):
    """One side-by-side measurement.

    Attributes:
        name: for the command line.
        title: one line.
        script: its file in ``benchmarks/``.
        how: what is equal in all systems and how it was measured.
        measures: the quantities.
        facts: figures that compare nothing, by name.
        measured: day, UTC.
        seconds: wall time of the whole case.
        load: of the machine.
    """

    name: str
    title: str
    script: str
    how: str
    measures: list[Measure] = Field(min_length=1)
    facts: dict[str, Finite | str] = {}
    measured: str
    seconds: Finite
    load: Load


class Results(_Strict):
    """Everything in ``results.json``.

    Attributes:
        version: of this layout.
        quick: True of a trial run with few rounds, whose figures say nothing.
        machine: what it was measured on.
        versions: of the packages that were compared.
        cases: in the order of the catalogue.
        left_out: cases that could not be measured, with the reason.
    """

    version: Literal[1] = VERSION
    quick: bool
    machine: dict[str, str]
    versions: dict[str, str]
    cases: list[Case]
    left_out: dict[str, str] = {}

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        names = [case.name for case in self.cases]
        if len(set(names)) != len(names):
            raise ValueError(f"a case stands there twice: {names}")
        return self


def rounded(value: float) -> float:
    """Five significant digits: more are noise. Whole numbers are counts, and stay as they are."""
    if not math.isfinite(value) or value == math.floor(value):
        return value
    return round(value, 4 - math.floor(math.log10(abs(value))))


def read(path: Path) -> Results:
    """Read and check a file of results.

    Raises:
        ValueError: it has another layout; the message names the places.
    """
    try:
        return Results.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise ValueError(f"{path} is no file of results: {error}") from error


def write(results: Results, path: Path) -> None:
    """Write them, small enough to be reviewed line by line."""
    text = json.dumps(results.model_dump(), indent=1, ensure_ascii=False)
    path.write_text(_short_rounds(text) + "\n", encoding="utf-8")


def _short_rounds(text: str) -> str:
    """Lists of numbers on one line each."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.endswith('"rounds": ['):
            inside = True
            lines.append(line)
        elif inside:
            lines[-1] += line.strip() + (" " if line.endswith(",") else "")
            inside = not line.strip().startswith("]")
        else:
            lines.append(line)
    return "\n".join(lines)
