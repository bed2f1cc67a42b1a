"""Plants distributions in a directory, and looks at them from processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest


class Site:
    """A directory of planted distributions."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def plant(
        self,
        name: str,
        entries: Mapping[str, Mapping[str, str]],
        modules: Mapping[str, str] | None = None,
        *,
        api: str | None = "v1",
        requires: str = "",
        damaged: bool = False,
    ) -> None:
        """Write metadata and modules of a distribution, version 1.0."""
        info = self.directory / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        requirement = f"Requires-Dist: {requires}\n" if requires else ""
        header = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requirement}"
        (info / "METADATA").write_text(header)
        groups = {f"voicehub.{group}": items for group, items in entries.items()}
        if api:
            groups["voicehub.plugin_api"] = {api: name.replace("-", "_")}
        lines = []
        for group, items in groups.items():
            lines += [f"[{group}]", *(f"{key} = {value}" for key, value in items.items())]
        if damaged:
            lines.append("a line that is no entry")
        (info / "entry_points.txt").write_text("\n".join(lines))
        for module, source in (modules or {}).items():
            (self.directory / f"{module}.py").write_text(textwrap.dedent(source))

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("VOICEHUB_")}
        return {**kept, "PYTHONPATH": str(self.directory), "OMP_NUM_THREADS": "1"}

    def python(self, code: str) -> Any:
        """Run code that prints one JSON value on its last line, and return that."""
        done = self._run([sys.executable, "-c", textwrap.dedent(code)])
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    def voicehub(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command line."""
        start = "from voicehub.cli.app import main; main()"
        return self._run([sys.executable, "-c", start, *arguments])

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environment(),
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )


SPEC = """
from voicehub.specs.model import ModelTrainingSpec
SPEC = ModelTrainingSpec(
    model_type="{name}", family="{family}", support="native", adapter_factory={factory!r}
)
"""


def spec_source(name: str, family: str = "", factory: str | None = None) -> str:
    """The source of a light module with a spec."""
    return SPEC.format(name=name, family=family or name, factory=factory)


@pytest.fixture(scope="module")
def make_site(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Site]:
    """Return empty sites."""
    return lambda: Site(tmp_path_factory.mktemp("planted") / "site")


@pytest.fixture(scope="session")
def spec_of() -> Callable[..., str]:
    """Return ``spec_source``."""
    return spec_source
