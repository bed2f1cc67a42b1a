"""The page of the benchmarks agrees with their figures."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import benchmarks_page
import pytest
from harness import results
from harness.results import Case, Load, Measure, Results


def made_up() -> Results:
    time = Measure.of(
        "CPU time a step", "ms", {"plain <loop>": 4.0, "voicehub": 1.0, "other": 2.0},
        "plain <loop>", rounds={"voicehub": [0.5, 1.0, 1.5]},
    )  # fmt: skip
    speed = Measure.of(
        "throughput", "items/s", {"other": 0.01, "voicehub": 12345.0}, "other", better="higher"
    )
    case = Case(
        name="toy", title="A toy", script="toy.py", how="In turn.", measures=[time, speed],
        facts={"modules": 1000.0, "order": "1e-05"}, measured="2026-01-31", seconds=12.3,
        load=Load(before=0.5, after=3.25, cores=2),
    )  # fmt: skip
    return Results(
        quick=False,
        machine={
            "processor": "P",
            "cores": "2",
            "memory": "8 GiB",
            "system": "S",
            "python": "3",
            "niceness": "-5",
        },
        versions={"torch": "2.9"},
        cases=[case],
        left_out={"xvector-throughput": "no fsdd"},
    )


def test_page_and_pictures_agree_with_the_figures() -> None:
    """Run ``python tools/benchmarks_page.py`` when this fails."""
    found = results.read(benchmarks_page.RESULTS)
    assert not found.quick
    files = benchmarks_page.files_of(found)
    assert benchmarks_page.stale(files, benchmarks_page.PAGE.parent) == []


def test_the_page_says_all_that_was_measured() -> None:
    page = benchmarks_page.files_of(made_up())["benchmarks.md"]
    assert "| **voicehub** | 1 | 0.25 | 0.5, 1.5 |" in page
    assert "| [A toy](#a-toy) | CPU time a step | other | 0.50 |" in page  # the best of the others
    assert "|  | throughput | other | 1234500.00 |" in page  # the case is named once
    assert "between 0.5 and 3.2 processes" in page and "niceness -5" in page
    assert "| modules | 1,000 |" in page and "| order | 1e-05 |" in page
    assert "- xvector-throughput: no fsdd" in page
    assert "](images/benchmarks/toy-2.svg)" in page


def test_pictures_are_well_formed_and_mark_ours() -> None:
    files = benchmarks_page.files_of(made_up())
    first = ElementTree.fromstring(files["images/benchmarks/toy-1.svg"])
    names = {"s": "http://www.w3.org/2000/svg"}
    bars = first.findall("s:rect", names)
    assert [bar.get("class") for bar in bars] == ["bar", "ours", "bar"]
    widths = [float(bar.get("width", "0")) for bar in bars]
    assert widths[0] == pytest.approx(4 * widths[1], rel=1e-2)
    assert "plain <loop>" in "".join(first.itertext())
    second = files["images/benchmarks/toy-2.svg"]
    assert "logarithmic" in second and "more is better" in second


def test_files_that_differ_are_missing_or_too_many_are_told_and_put_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, docs = tmp_path / "results.json", tmp_path / "docs"
    results.write(made_up(), path)
    assert results.read(path) == made_up()
    given = ["--results", str(path), "--docs", str(docs)]
    assert benchmarks_page.main([*given, "--check"]) == 1
    assert benchmarks_page.main(given) == 0
    assert benchmarks_page.main([*given, "--check"]) == 0
    (docs / "images/benchmarks/gone-1.svg").write_text("<svg/>")
    (docs / "benchmarks.md").write_text("by hand")
    capsys.readouterr()
    assert benchmarks_page.main([*given, "--check"]) == 1
    said = capsys.readouterr().out
    assert "benchmarks.md" in said and "gone-1.svg" in said
    assert benchmarks_page.main(given) == 0
    assert not (docs / "images/benchmarks/gone-1.svg").exists()
