"""The development environment ``.venv``: every package editable, and the tools of the sessions.

A stamp inside ``.venv`` holds a digest of everything that decides what is installed. Where it is
equal, nothing is done; where it differs, pip brings the environment up to date; where the
environment cannot run (half made, moved, of a removed interpreter), it is made anew.

Standard library only, for Python 3.10: nox imports this before anything is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

Runner = Callable[[Sequence[str]], object]
"""Runs a command, shows its output, raises if it fails."""


def run_visibly(command: Sequence[str]) -> None:
    """The default ``Runner``."""
    subprocess.run(list(command), check=True)


def _maker() -> str:
    """``venv``, or ``virtualenv`` (which nox brings) where a system Python lacks ensurepip."""
    return "venv" if importlib.util.find_spec("ensurepip") is not None else "virtualenv"


class DevEnvironment:
    """``.venv`` below ``root``.

    Args:
        root: repository root.
        run: how commands are run; tests pass one that records them.
    """

    def __init__(self, root: Path, run: Runner = run_visibly) -> None:
        self.root = root.resolve()
        self.directory = self.root / ".venv"
        self._run = run

    @property
    def scripts(self) -> Path:
        """Where the environment keeps its programs."""
        return self.directory / ("Scripts" if os.name == "nt" else "bin")

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.scripts / ("python.exe" if os.name == "nt" else "python")

    def packages(self) -> list[Path]:
        """Folders of the distributions, the core first."""
        found = [path.parent for path in self.root.glob("packages/*/pyproject.toml")]
        found += [path.parent for path in self.root.glob("plugins/*/pyproject.toml")]
        return sorted(found, key=lambda path: (path.name != "voicehub-core", path))

    def ensure(self, *groups: str) -> bool:
        """Make the environment fit for ``groups`` of ``requirements/``; ``dev`` always is one.

        Returns:
            Whether anything had to be done.
        """
        if sys.version_info < (3, 10):  # noqa: UP036 -- nox itself runs on older ones
            raise RuntimeError(
                f"VoiceHub needs Python 3.10 or newer; this is {sys.version.split()[0]}. "
                "Run nox with a newer one: python3.12 -m nox …"
            )
        wanted = ("dev", *(group for group in groups if group != "dev"))
        stale = [group for group in wanted if not self._is_current(group)]
        if not self._runs():
            self._run([sys.executable, "-m", _maker(), "--clear", str(self.directory)])
            stale = list(wanted)
        for group in stale:
            stamp = self._stamp(group)
            stamp.unlink(missing_ok=True)
            self._run(self._install_command(group))
            stamp.write_text(self._digest(group), encoding="utf-8")
        return bool(stale)

    def _install_command(self, group: str) -> list[str]:
        command = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check"]
        if group == "dev":
            for package in self.packages():
                command += ["-e", str(package)]
        return [*command, "-r", str(self._requirements(group))]

    def _requirements(self, group: str) -> Path:
        return self.root / "requirements" / f"{group}.txt"

    def _stamp(self, group: str) -> Path:
        return self.directory / f".voicehub-{group}"

    def _is_current(self, group: str) -> bool:
        try:
            return self._stamp(group).read_text(encoding="utf-8") == self._digest(group)
        except OSError:
            return False

    def _runs(self) -> bool:
        """Whether the interpreter starts, has pip, and believes to be in this directory."""
        check = "import pip, sys; print(sys.prefix)"
        try:
            answer = subprocess.run(
                [str(self.python), "-c", check], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return False
        where = Path(answer.stdout.strip())
        return where.resolve() == self.directory.resolve() and self._made_here()

    def _made_here(self) -> bool:
        """Console scripts hold absolute paths, so a copied or moved environment is of no use."""
        scripts = [path for path in self.scripts.glob("pip*") if path.suffix == ""]
        if os.name == "nt" or not scripts:
            return True
        first_line = scripts[0].read_bytes().partition(b"\n")[0]
        return os.fsencode(self.directory) in first_line or b"/bin/sh" in first_line

    def _digest(self, group: str) -> str:
        """Of the place, the interpreter, and every file that says what to install."""
        decisive = [Path(__file__), self._requirements(group)]
        if group == "dev":
            decisive += [package / "pyproject.toml" for package in self.packages()]
        parts = [f"{self.root}", f"{sys.version_info[:2]}"]
        for path in decisive:
            name = path.name if path == Path(__file__) else path.relative_to(self.root).as_posix()
            parts.append(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
