"""The workflow of continuous integration runs sessions that exist, on the Pythons we support."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from package_matrix import PYTHONS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    path = ROOT / ".github" / "workflows" / "ci.yml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"])


def commands(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_every_session_named_exists(jobs: dict[str, Any]) -> None:
    source = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    defined = set(re.findall(r"^def (\w+)\(session", source, re.MULTILINE))
    for job in jobs.values():
        for names in re.findall(r"nox -s ([a-z_ ]+)", commands(job)):
            assert set(names.split()) <= defined


def test_the_shared_script_runs_on_every_python(jobs: dict[str, Any]) -> None:
    assert jobs["tests"]["strategy"]["matrix"]["python"] == ["3.10", "3.11", "3.12", "3.13"]
    assert ".ci/run" in commands(jobs["tests"])


def test_the_matrix_has_its_interpreters(jobs: dict[str, Any]) -> None:
    (setup,) = (s for s in jobs["alone"]["steps"] if "setup-python" in s.get("uses", ""))
    assert tuple(setup["with"]["python-version"].split()) == PYTHONS
    assert "matrix core_only wheels" in commands(jobs["sessions"])
