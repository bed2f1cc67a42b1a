"""The sessions that documentation and continuous integration rely on exist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROMISED = {
    "dev", "quickstart", "tests", "bars", "lint", "typing", "docs", "build", "bench",
}  # fmt: skip


def listed(*arguments: str) -> dict[str, str]:
    """Sessions that nox would run, with their descriptions."""
    command = [sys.executable, "-m", "nox", "-f", str(ROOT / "noxfile.py"), "-l", "--json"]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return {entry["session"]: entry["description"] for entry in json.loads(result.stdout)}


def test_tests_are_the_default() -> None:
    assert set(listed()) == {"tests"}


def test_every_promised_session_exists_and_says_what_it_does() -> None:
    sessions = listed("-s", *sorted(PROMISED))
    assert set(sessions) == PROMISED
    assert all(sessions.values())


@pytest.mark.skipif(os.name == "nt", reason="a bash script")
def test_continuous_integration_installs_nox_and_runs_the_tests(tmp_path: Path) -> None:
    """With a Python that only notes what it is asked to do."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$(pwd): $*" >> {tmp_path}/calls\n')
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("PYTHON", None)
    subprocess.run([str(ROOT / ".ci" / "run")], check=True, cwd=tmp_path, env=environment)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [f"{ROOT}: -m pip install nox", f"{ROOT}: -m nox -s tests"]


@pytest.mark.skipif(os.name == "nt", reason="a bash script")
def test_continuous_integration_fails_when_the_tests_do(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$*" in *nox\\ -s*) exit 7;; esac\n')
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("PYTHON", None)
    result = subprocess.run([str(ROOT / ".ci" / "run")], check=False, env=environment)
    assert result.returncode == 7
