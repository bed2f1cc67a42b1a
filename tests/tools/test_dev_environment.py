"""When the development environment is made, brought up to date, or left alone."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from dev_environment import DevEnvironment

pytestmark = pytest.mark.skipif(
    os.name == "nt", reason="a shell script stands in for the interpreter"
)


class Recorder:
    """Stands in for running commands: writes what `venv` would leave, notes what pip is told."""

    def __init__(self, root: Path) -> None:
        self.venv = root / ".venv"
        self.commands: list[list[str]] = []
        self.fail_at: str | None = None

    def __call__(self, command: Sequence[str]) -> None:
        self.commands.append(list(command))
        if self.fail_at is not None and self.fail_at in command:
            raise RuntimeError("killed half-way")
        if "venv" in command or "virtualenv" in command:
            shutil.rmtree(self.venv, ignore_errors=True)
            scripts = self.venv / "bin"
            scripts.mkdir(parents=True)
            python = scripts / "python"
            python.write_text(f'#!/bin/sh\necho "{self.venv}"\n')
            python.chmod(0o755)
            (scripts / "pip").write_text(f"#!{python}\n")

    @property
    def kinds(self) -> list[str]:
        kinds = ["venv" if "venv" in c else Path(c[-1]).stem for c in self.commands]
        self.commands.clear()
        return kinds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("voicehub-data", "voicehub-core"):
        package = tmp_path / "clone" / "packages" / name
        package.mkdir(parents=True)
        (package / "pyproject.toml").write_text(f'name = "{name}"')
    requirements = tmp_path / "clone" / "requirements"
    requirements.mkdir()
    for group in ("dev", "bench"):
        (requirements / f"{group}.txt").write_text("pytest\n")
    return tmp_path / "clone"


@pytest.fixture
def recorder(root: Path) -> Recorder:
    return Recorder(root)


@pytest.fixture
def environment(root: Path, recorder: Recorder) -> DevEnvironment:
    return DevEnvironment(root, run=recorder)


def test_a_missing_environment_is_made_and_the_second_run_does_nothing(
    environment: DevEnvironment, recorder: Recorder
) -> None:
    assert environment.ensure()
    install = recorder.commands[1]
    editable = [install[i + 1] for i, word in enumerate(install) if word == "-e"]
    assert [Path(path).name for path in editable] == [
        "voicehub-core",
        "voicehub-data",
    ]
    assert recorder.kinds == ["venv", "dev"]
    assert not environment.ensure()
    assert recorder.kinds == []


@pytest.mark.parametrize(
    "changed", ["packages/voicehub-data/pyproject.toml", "requirements/dev.txt"]
)
def test_a_changed_requirement_installs_again_without_a_new_environment(
    environment: DevEnvironment, recorder: Recorder, root: Path, changed: str
) -> None:
    environment.ensure()
    recorder.commands.clear()
    (root / changed).write_text("other")
    assert environment.ensure()
    assert recorder.kinds == ["dev"]


def test_a_new_package_installs_again(
    environment: DevEnvironment, recorder: Recorder, root: Path
) -> None:
    environment.ensure()
    recorder.commands.clear()
    plugin = root / "plugins" / "voicehub-example"
    plugin.mkdir(parents=True)
    (plugin / "pyproject.toml").write_text("new")
    assert environment.ensure()
    assert str(plugin) in recorder.commands[0]


def test_an_installation_that_was_killed_is_repeated(
    environment: DevEnvironment, recorder: Recorder, root: Path
) -> None:
    recorder.fail_at = "pip"
    with pytest.raises(RuntimeError, match="killed"):
        environment.ensure()
    recorder.fail_at = None
    recorder.commands.clear()
    assert environment.ensure()
    assert recorder.kinds == ["dev"]


def test_an_update_that_was_killed_is_repeated(
    environment: DevEnvironment, recorder: Recorder, root: Path
) -> None:
    environment.ensure()
    original = (root / "requirements" / "dev.txt").read_text()
    (root / "requirements" / "dev.txt").write_text("other")
    recorder.fail_at = "pip"
    with pytest.raises(RuntimeError, match="killed"):
        environment.ensure()
    # Back to the old list: what pip had done by then is unknown, so the old stamp must be gone.
    (root / "requirements" / "dev.txt").write_text(original)
    recorder.fail_at = None
    recorder.commands.clear()
    assert environment.ensure()
    assert recorder.kinds == ["dev"]


@pytest.mark.parametrize("damage", ["no interpreter", "broken interpreter", "no directory"])
def test_an_environment_that_cannot_run_is_made_anew(
    environment: DevEnvironment, recorder: Recorder, damage: str
) -> None:
    environment.ensure()
    recorder.commands.clear()
    if damage == "no interpreter":
        environment.python.unlink()
    elif damage == "broken interpreter":
        environment.python.write_text("#!/nowhere/python\n")
    else:
        shutil.rmtree(environment.directory)
    assert environment.ensure()
    assert recorder.kinds == ["venv", "dev"]


def test_virtualenv_stands_in_where_the_system_python_has_no_ensurepip(
    environment: DevEnvironment, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert environment.ensure()
    assert recorder.commands[0][:4] == [sys.executable, "-m", "virtualenv", "--clear"]


def test_a_moved_clone_gets_a_new_environment(
    environment: DevEnvironment, recorder: Recorder, root: Path
) -> None:
    environment.ensure()
    moved = root.parent / "moved"
    root.rename(moved)
    there = Recorder(moved)
    assert DevEnvironment(moved, run=there).ensure()
    assert there.kinds == ["venv", "dev"]


def test_a_group_is_added_without_installing_the_packages_again(
    environment: DevEnvironment, recorder: Recorder
) -> None:
    environment.ensure()
    recorder.commands.clear()
    assert environment.ensure("bench")
    assert recorder.kinds == ["bench"]
    assert not environment.ensure("bench")


def test_the_environment_of_this_run_lists_every_package_of_the_repository() -> None:
    root = Path(__file__).resolve().parents[2]
    names = [path.name for path in DevEnvironment(root).packages()]
    assert names[0] == "voicehub-core"
    assert {"voicehub-data", "voicehub-hf", "voicehub-asr-ctc"} <= set(names)
    assert set(names) == {
        path.parent.name
        for folder in ("packages", "plugins")
        for path in (root / folder).glob("*/pyproject.toml")
    }
