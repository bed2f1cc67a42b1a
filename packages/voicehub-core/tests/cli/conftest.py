"""Plants plugins: packages with their metadata in a directory on ``sys.path``."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from voicehub.plugins import loading

PLANTED = Path(__file__).parent / "planted"
TOY_ENTRIES = {
    "voicehub.plugin_api": {"v1": "toyfamily"},
    "voicehub.training_specs": {"toy-line": "toyfamily.specs:TOY_LINE"},
    "voicehub.models": {"toy-line": "toyfamily.model:ToyModel"},
    "voicehub.presets": {"toy": "toyfamily.presets"},
    "voicehub.commands": {"toy": "toyfamily.commands:app"},
}


def plant(
    site: Path, distribution: str, entries: Mapping[str, Mapping[str, str]], version: str = "1.2"
) -> None:
    """Write the metadata of an installed distribution."""
    info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    header = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
    (info / "METADATA").write_text(header)
    lines = []
    for group, names in entries.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in names.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))


@dataclass
class Outcome:
    """What a command line did."""

    code: int
    stdout: str
    stderr: str

    @property
    def last_json(self) -> dict[str, Any]:
        """The last line, which must be one JSON object."""
        value = json.loads(self.stdout.splitlines()[-1])
        assert isinstance(value, dict)
        return value


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of installed packages with the toy family; on the path of this process."""
    directory = tmp_path / "site"
    shutil.copytree(PLANTED, directory)
    plant(directory, "voicehub-toy", TOY_ENTRIES)
    monkeypatch.syspath_prepend(str(directory))
    for name in ("VOICEHUB_DEBUG", "VOICEHUB_DISABLE_PLUGINS", "VOICEHUB_DISABLE_PLUGIN_AUTOLOAD"):
        monkeypatch.delenv(name, raising=False)
    loading.refresh()
    handlers = list(logging.getLogger().handlers)
    yield directory
    logging.getLogger().handlers[:] = handlers  # a command that shows logs adds its own
    loading.refresh()
    for module in [name for name in sys.modules if name.split(".")[0] == "toyfamily"]:
        del sys.modules[module]


@pytest.fixture
def work(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory beside ``site``, with a manifest of 40 rows of numbers."""
    directory = tmp_path / "work"
    directory.mkdir()
    rows = [
        {"id": f"r{i}", "x": [(i * k) % 7 / 7 for k in range(1, 9)], "text": f"{i} two"}
        for i in range(40)
    ]
    for name, part in (("train", rows), ("test", rows[:8])):
        text = "".join(json.dumps(row) + "\n" for row in part)
        (directory / f"{name}.jsonl").write_text(text)
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def cli(work: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command line in this process, in the working directory."""
    from voicehub.cli.app import run

    def invoke(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = run(arguments)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return invoke


@pytest.fixture
def cli_process(site: Path, work: Path) -> Callable[..., Outcome]:
    """Run a command line in a fresh process."""

    def invoke(*arguments: str, **environment: str) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-c", "from voicehub.cli.app import main; main()", *arguments],
            cwd=work,
            env=process_environment(site, environment),
            capture_output=True,
            text=True,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return invoke


def process_environment(site: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child that finds the planted packages."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VOICEHUB_")}
    return {**kept, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", **(extra or {})}


@pytest.fixture
def planted(site: Path) -> Callable[..., None]:
    """Plant the metadata of a further distribution."""

    def further(
        distribution: str, entries: Mapping[str, Mapping[str, str]], **options: str
    ) -> None:
        plant(site, distribution, entries, **options)
        loading.refresh()

    return further


@pytest.fixture
def child_environment(site: Path) -> dict[str, str]:
    """The environment of a child process that finds the planted packages."""
    return process_environment(site)
