"""``voicehub new-plugin``: what it writes installs, holds the kit and trains, without an edit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from voicehub.cli.app import run
from voicehub.cli.new_plugin import write_plugin

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A written plugin, its sources and metadata on the path of child processes."""
    root = tmp_path_factory.mktemp("new")
    write_plugin("my-demo", root / "my-demo")
    project = tomllib.loads((root / "my-demo" / "pyproject.toml").read_text())["project"]
    source = root / "my-demo" / "src"
    info = source / "voicehub_my_demo-0.1.0.dist-info"
    info.mkdir()
    requires = "".join(f"Requires-Dist: {line}\n" for line in project["dependencies"])
    header = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(header + requires)
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    return root, environment


def execute(
    installed: tuple[Path, dict[str, str]], *command: str, cwd: str = "."
) -> subprocess.CompletedProcess[str]:
    root, environment = installed
    return subprocess.run(
        [sys.executable, *command],
        cwd=root / cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_own_tests_pass_the_kit_among_them(installed: tuple[Path, dict[str, str]]) -> None:
    done = execute(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd="my-demo")
    assert done.returncode == 0, done.stdout[-4000:]
    assert "my-demo-denoiser: 16 held" in done.stdout


def test_its_preset_trains(installed: tuple[Path, dict[str, str]]) -> None:
    start = "from voicehub.cli.app import main; main()"
    done = execute(installed, "-c", start, "train", "my-demo/tiny", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout.splitlines()[-1])["summary"]
    assert summary["metrics"]["eval_noise_left"] < 0.5
    assert (installed[0] / summary["model_directory"] / "model.safetensors").is_file()


def test_its_spec_is_listed_as_sound(installed: tuple[Path, dict[str, str]]) -> None:
    start = "from voicehub.cli.app import main; main()"
    done = execute(installed, "-c", start, "plugins", "--inspect", "--json")
    items = json.loads(done.stdout.splitlines()[-1])["plugins"]
    mine = [item for item in items if item["distribution"] == "voicehub-my-demo"]
    assert {item["state"] for item in mine} == {"loaded"}, mine
    assert [item["remarks"] for item in mine] == [[]] * len(mine)


def test_every_file_of_a_complete_distribution_is_there(tmp_path: Path) -> None:
    files = set(write_plugin("demo", tmp_path / "demo"))
    assert files >= {
        "pyproject.toml",
        "README.md",
        ".gitignore",
        "noxfile.py",
        ".github/workflows/ci.yml",
        "src/voicehub_demo/py.typed",
        "src/voicehub_demo/presets/tiny.yaml",
        "tests/test_conformance.py",
        "tests/test_training.py",
        *(
            f"src/voicehub_demo/{name}.py"
            for name in ("specs", "config", "data", "model", "adapter", "experiment", "conformance")
        ),
    }
    for name in files:
        text = (tmp_path / "demo" / name).read_text()
        assert not any(
            f"@{word}@" in text for word in ("family", "package", "distribution", "core")
        )


def test_the_source_is_small_enough_to_read(tmp_path: Path) -> None:
    write_plugin("demo", tmp_path / "demo")
    lines = [
        line
        for path in (tmp_path / "demo" / "src").rglob("*.py")
        for line in path.read_text().splitlines()
        if line.strip()
    ]
    assert len(lines) < 300


@pytest.mark.parametrize("name", ["Demo", "my_codec", "-x", "3d", "a--b", "demo/x", ""])
def test_a_name_that_is_none_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["new-plugin", "--", name]) == 2
    assert "lower-case letters and digits" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "mine.txt").write_text("precious")
    assert run(["new-plugin", "demo"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["mine.txt"]
    assert run(["new-plugin", "demo", "--output", str(tmp_path / "other"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["distribution"] == "voicehub-demo"
    assert "src/voicehub_demo/specs.py" in result["files"]


def test_a_family_that_is_installed_is_not_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from voicehub.plugins import discovery

    info = tmp_path / "site" / "voicehub_taken-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: voicehub-taken\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[voicehub.plugin_api]\nv1 = voicehub_taken\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    discovery.refresh()
    try:
        assert run(["new-plugin", "taken"]) == 2
    finally:
        monkeypatch.undo()
        discovery.refresh()
    assert "voicehub-taken 2.0 is installed" in capsys.readouterr().err


def test_the_licence_is_the_authors_choice(tmp_path: Path) -> None:
    for name, options in (("a", {}), ("b", {"license_": "MIT"})):
        write_plugin(name, tmp_path / name, **options)
        project = tomllib.loads((tmp_path / name / "pyproject.toml").read_text())["project"]
        assert project.get("license") == ("MIT" if options else None)
