"""``pytest --voicehub-family NAME``, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SPEC = """
from voicehub.specs.model import ModelTrainingSpec
SPEC = ModelTrainingSpec(model_type="planted-type", family="planted", support="native")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A distribution with a spec and no conformance case."""
    directory = tmp_path / "site"
    info = directory / "planted_family-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted-family\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[voicehub.plugin_api]\nv1 = planted_specs\n"
        "[voicehub.training_specs]\nplanted-type = planted_specs:SPEC\n"
    )
    (directory / "planted_specs.py").write_text(SPEC)
    return directory


def run_pytest(site: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_a_family_without_a_case_is_not_passed_over(site: Path, tmp_path: Path) -> None:
    done = run_pytest(site, tmp_path, "--voicehub-family", "planted")
    assert done.returncode == 1, done.stdout
    assert "planted-type offers no ConformanceCase" in done.stdout
    assert "1 failed" in done.stdout


def test_a_misspelt_family_is_wrong_use(site: Path, tmp_path: Path) -> None:
    done = run_pytest(site, tmp_path, "--voicehub-family", "plantd")
    assert done.returncode == 4, done.stdout
    assert "Did you mean 'planted'?" in done.stderr


def test_given_paths_are_collected_beside_the_kit(site: Path, tmp_path: Path) -> None:
    mine = tmp_path / "test_mine.py"
    mine.write_text("def test_mine():\n    pass\n")
    done = run_pytest(site, tmp_path, str(mine), "--voicehub-family", "planted")
    assert "1 failed, 1 passed" in done.stdout, done.stdout


def test_without_the_option_nothing_is_imported(site: Path, tmp_path: Path) -> None:
    """The plugin is part of every pytest run of the environment; it must cost nothing."""
    (tmp_path / "test_mine.py").write_text(
        "import sys\n"
        "def test_mine():\n"
        "    heavy = {'torch', 'numpy', 'pydantic', 'planted_specs', 'typer'}\n"
        "    assert not heavy & set(sys.modules)\n"
        "    ours = {name for name in sys.modules if name.startswith('voicehub.')}\n"
        "    assert ours <= {'voicehub.testing', 'voicehub.testing.pytest_plugin', "
        "'voicehub._lazy'}, ours\n"
    )
    done = run_pytest(site, tmp_path, "-p", "no:hypothesispytest")
    assert done.returncode == 0, done.stdout
    assert "conformance" not in done.stdout


def test_the_report_says_what_held_and_what_did_not(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "from voicehub.testing.outcomes import Outcome, record\n"
        "def test_mine():\n"
        "    record(Outcome('a-type', 'gradients', 'held', '3 of 3 parameters'))\n"
        "    record(Outcome('a-type', 'padding_mates', 'declared', 'group norm'))\n"
        "    record(Outcome('a-type', 'export', 'failed', 'differs by 1'))\n"
    )
    done = run_pytest(site, tmp_path)
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "a-type: 1 held, 1 declared, 1 failed" in lines
    (failed,) = [line for line in lines if line.startswith("failed")]
    assert failed.endswith("equal outputs: differs by 1")
