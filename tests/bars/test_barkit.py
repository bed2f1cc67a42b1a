"""The runner of the bars, on bars made for the purpose."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

BARS = """
from pathlib import Path
from barkit import Outcome, Skipped, bar

@bar("good", "1 + 1 = 2")
def good(scratch):
    assert not list(scratch.iterdir())
    return Outcome("2", 1 + 1 == 2, {"sum": 2})

@bar("bad", "1 + 1 = 3")
def bad(scratch):
    (scratch / "evidence.txt").write_text("2")
    return Outcome("2", 1 + 1 == 3)

@bar("broken", "never measured")
def broken(scratch):
    raise RuntimeError("no such device")

@bar("absent", "needs data")
def absent(scratch):
    raise Skipped("no data here")
"""


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "bar_made_up.py").write_text(BARS)
    call = (
        f"import runpy, sys; from pathlib import Path; sys.path.insert(0, {str(HERE)!r});"
        f"main = runpy.run_path({str(HERE)!r} + '/__main__.py')['main'];"
        f"sys.exit(main(sys.argv[1:], Path({str(directory)!r})))"
    )
    return subprocess.run(
        [sys.executable, "-c", call, *arguments], capture_output=True, text=True, check=False
    )


def verdicts(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    report = json.loads(result.stdout.splitlines()[-1])
    return {bar["bar"]: bar["verdict"] for bar in report["bars"]}


def test_every_bar_is_measured_though_one_before_it_broke(tmp_path: Path) -> None:
    result = run(tmp_path, "--json")
    assert result.returncode == 1
    assert verdicts(result) == {
        "good": "pass",
        "bad": "fail",
        "broken": "fail",
        "absent": "skip",
    }
    assert "no such device" in result.stdout
    assert "no data here" in result.stdout
    assert "Traceback" in result.stderr


@pytest.mark.parametrize(("name", "code"), [("good", 0), ("absent", 0), ("bad", 1), ("broken", 1)])
def test_exit_code_of_one_bar(tmp_path: Path, name: str, code: int) -> None:
    result = run(tmp_path, name, "--json")
    assert result.returncode == code
    assert list(verdicts(result)) == [name]


def test_an_unknown_name_is_wrong_use_and_names_the_nearest(tmp_path: Path) -> None:
    result = run(tmp_path, "goood")
    assert result.returncode == 2
    assert "Did you mean 'good'?" in result.stderr


def test_evidence_of_a_failure_is_kept_on_request(tmp_path: Path) -> None:
    result = run(tmp_path, "bad", "--keep", "--json")
    (entry,) = json.loads(result.stdout.splitlines()[-1])["bars"]
    left = Path(entry["figure"].partition("left in ")[2].rstrip(")"))
    assert (left / "evidence.txt").read_text() == "2"


def test_the_bars_of_this_project_load() -> None:
    result = subprocess.run(
        [sys.executable, str(HERE), "--list"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    names = {line.split()[0] for line in result.stdout.splitlines()}
    assert {"fsdd", "fsdd-shuffled", "quickstart", "overhead", "startup"} <= names
