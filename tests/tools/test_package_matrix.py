"""The environments of the matrix hold one package and what its own metadata asks for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from package_matrix import CORE, PYTHONS, closure, distributions, strangers

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A core, a data package, a family on both, and a plugin on the core."""
    needs = {
        "packages/voicehub-core": [],
        "packages/voicehub-data": ["voicehub-core==0.1", "soundfile>=1"],
        "packages/voicehub-family": ["voicehub_data==0.1"],
        "packages/voicehub-other": ["voicehub-data==0.1"],
        "plugins/voicehub-plugin": ["voicehub-core>=0.1,<0.2"],
    }
    for folder, dependencies in needs.items():
        (tmp_path / folder).mkdir(parents=True)
        text = f"[project]\nname = 'x'\ndependencies = {dependencies!r}\n"
        (tmp_path / folder / "pyproject.toml").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("voicehub-core", ["voicehub-core"]),
        ("voicehub-plugin", ["voicehub-core", "voicehub-plugin"]),
        ("voicehub-family", ["voicehub-core", "voicehub-data", "voicehub-family"]),
    ],
)
def test_a_package_brings_what_it_requires_and_no_more(
    repository: Path, name: str, expected: list[str]
) -> None:
    assert [path.name for path in closure(name, repository)] == expected


def test_the_development_environment_is_not_alone() -> None:
    assert "voicehub-data" in strangers(CORE)
    assert "transformers" in strangers(CORE)


def test_the_matrix_has_a_session_for_every_package_and_python() -> None:
    command = [sys.executable, "-m", "nox", "-f", str(ROOT / "noxfile.py"), "-l", "--json"]
    done = subprocess.run(
        [*command, "-s", "matrix", "core_only", "wheels"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    pairs = {(item["python"], item["call_spec"].get("package")) for item in listed}
    wanted = {(python, name) for python in PYTHONS for name in distributions() if name != CORE}
    assert wanted <= pairs
    assert {(python, None) for python in PYTHONS} <= pairs
