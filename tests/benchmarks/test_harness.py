"""The harness of the benchmarks, on systems made for the purpose."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from harness import catalogue, convert, machine, results
from harness.catalogue import Entry
from harness.interleaving import interleave, ratio
from harness.results import Measure

BENCHMARKS = Path(convert.__file__).resolve().parents[1]
BENCH = runpy.run_path(str(BENCHMARKS / "__main__.py"))

SCRIPT = """
import json, sys
assert sys.argv[1:] == ["--rounds", "1", "--json"], sys.argv
print("a table")
print(json.dumps({"seconds": {"ours": [0.1, 0.2, 0.3], "plain": [0.4, 0.2, 0.5]}}))
"""


def entry(script: Path, **options: Any) -> Entry:
    return Entry(
        options.pop("name", "toy"), "A toy", str(script), "In turn.", convert.step,
        ("--rounds", "1"), **options,
    )  # fmt: skip


@pytest.fixture
def toy(tmp_path: Path) -> Entry:
    script = tmp_path / "toy.py"
    script.write_text(SCRIPT)
    return entry(script)


def test_every_system_runs_once_a_round_in_turning_order() -> None:
    calls: list[str] = []
    ticks = iter(range(1000))
    works = {name: lambda name=name: calls.append(name) for name in "abc"}
    found = interleave(works, 4, clock=lambda: float(next(ticks)))
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab" + "abc"
    assert found == {name: [1.0] * 4 for name in "abc"}


def test_a_work_that_measured_itself_is_believed() -> None:
    figures = iter([9.0, 1.5, 2.5])
    assert interleave({"own": lambda: next(figures)}, 2) == {"own": [1.5, 2.5]}
    with pytest.raises(ValueError, match="0 systems and 3 rounds"):
        interleave({}, 3)


def test_ratios_are_taken_within_rounds() -> None:
    # Twice as slow in every round, though the machine slowed down fourfold in between.
    assert ratio([2.0, 8.0, 4.0], [1.0, 4.0, 2.0]) == 2.0
    with pytest.raises(ValueError, match="2 rounds against 1"):
        ratio([1.0, 2.0], [1.0])


def test_a_measure_knows_its_baseline_and_names_each_system_once() -> None:
    measure = Measure.of("time", "ms", {"them": 4.0, "voicehub": 1.0}, "them")
    assert [(row.value, row.ratio) for row in measure.rows] == [(4.0, 1.0), (1.0, 0.25)]
    rows = [row.model_dump() for row in measure.rows]
    with pytest.raises(ValueError, match="'nobody' is not in"):
        Measure(quantity="time", unit="ms", baseline="nobody", rows=rows)
    with pytest.raises(ValueError, match="stands there twice"):
        Measure(quantity="time", unit="ms", baseline="them", rows=[*rows, rows[0]])
    with pytest.raises(ValueError, match="finite"):
        Measure.of("time", "ms", {"them": float("nan")}, "them")


def test_a_bench_is_written_read_and_extended(toy: Entry, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    names = catalogue.CATALOGUE[0].name, catalogue.CATALOGUE[1].name
    first, second = (entry(Path(toy.script), name=name) for name in names)
    assert BENCH["run"]([second], path, quick=True, whole=True) == []
    assert BENCH["run"]([first], path, quick=True, whole=False) == []
    found = results.read(path)
    assert [case.name for case in found.cases] == list(names)  # the order of the catalogue
    (measure,) = found.cases[0].measures
    assert [(row.system, row.value) for row in measure.rows] == [
        ("plain loop", 400.0),
        ("voicehub", 200.0),
    ]
    assert measure.rows[1].ratio == 0.5 and measure.rows[1].rounds == [100.0, 200.0, 300.0]
    assert found.cases[0].load.cores >= 1 and "torch" in found.versions
    assert '"rounds": [400.0, 200.0, 500.0]' in path.read_text()  # a line a system
    assert BENCH["run"]([first], path, quick=True, whole=True) == []
    assert [case.name for case in results.read(path).cases] == [names[0]]
    with pytest.raises(SystemExit, match="trial figures"):
        BENCH["run"]([first], path, quick=False, whole=False)


def test_what_cannot_be_measured_is_left_out_and_what_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no such device')")
    monkeypatch.setenv("VOICEHUB_SHARED_DATA", str(tmp_path))
    names = [known.name for known in catalogue.CATALOGUE[:3]]
    entries = [
        entry(broken, name=names[0], needs=("no_such_package",)),
        entry(broken, name=names[1], data="no-such-folder"),
        entry(broken, name=names[2]),
    ]
    path = tmp_path / "results.json"
    assert BENCH["run"](entries, path, quick=True, whole=True) == [names[2]]
    found = results.read(path)
    assert not found.cases
    assert found.left_out == {
        names[0]: "no_such_package not installed",
        names[1]: "no no-such-folder in VOICEHUB_SHARED_DATA or beside the repository",
        names[2]: "it failed",
    }
    assert "no such device" in capsys.readouterr().out


def test_an_unknown_case_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert BENCH["main"](["no-such-case"]) == 2
    assert "trainer-overhead" in capsys.readouterr().err
    assert BENCH["main"](["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == len(catalogue.CATALOGUE)


def test_the_catalogue_names_scripts_that_are_there_each_case_once() -> None:
    assert len(catalogue.by_name()) == len(catalogue.CATALOGUE)
    assert all((BENCHMARKS / known.script).is_file() for known in catalogue.CATALOGUE)
    assert all(known.quick and known.how.endswith(".") for known in catalogue.CATALOGUE)


def test_a_file_of_another_layout_is_refused(tmp_path: Path, toy: Entry) -> None:
    path = tmp_path / "results.json"
    BENCH["run"]([entry(Path(toy.script), name="startup")], path, quick=True, whole=True)
    document = json.loads(path.read_text())
    document["cases"][0]["colour"] = "blue"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"cases\.0\.colour"):
        results.read(path)


def test_the_machine_is_described_in_words() -> None:
    found = machine.describe()
    assert set(found) == {"processor", "cores", "memory", "system", "python", "niceness"}
    assert all(found.values())
    assert machine.versions(["torch", "no-such-distribution"]).keys() == {"torch"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, 0.0), (123456.7, 123460.0), (281241.0, 281241.0), (0.000123456, 0.00012346)],
)
def test_figures_keep_five_digits(value: float, expected: float) -> None:
    assert results.rounded(value) == pytest.approx(expected, rel=1e-12)
