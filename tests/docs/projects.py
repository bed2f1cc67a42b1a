"""Make a project on disk importable with its entry points, as ``pip install -e`` does."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from voicehub.plugins import hooks, loading

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PATH = re.compile(r"(?P<path>\.{1,2}/[^\[]+)(\[[\w,-]+\])?")


def project_path(word: str) -> Path | None:
    """The directory that an argument of ``pip install`` names, or None for a requirement."""
    match = _PATH.fullmatch(word)
    return Path(match["path"]) if match else None


def install_project(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put ``src`` of a project, and metadata made of its pyproject.toml, on the path."""
    project = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = (directory / "src").resolve()
    stem = project["name"].replace("-", "_")
    info = source / f"{stem}-{project['version']}.dist-info"
    info.mkdir()
    head = [f"Name: {project['name']}", f"Version: {project['version']}"]
    head += [f"Requires-Dist: {line}" for line in project["dependencies"]]
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *head]) + "\n")
    lines = []
    for group, entries in project.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    earlier = os.environ.get("PYTHONPATH")
    path = str(source) if not earlier else f"{source}{os.pathsep}{earlier}"
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.syspath_prepend(str(source))
    loading.refresh()
    hooks.refresh()


def forget_projects(below: Path) -> None:
    """Forget modules and entry points of projects that lay below a directory."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(below)):
            del sys.modules[name]
    loading.refresh()
    hooks.refresh()
