"""Where things lie on the host: all below one folder."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from voicehub.cli.output import UsageError

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Places:
    """Paths on the host, as text: relative ones start in the home directory, where ssh begins.

    Attributes:
        root: the folder that holds all others. It may hold blanks: quote what goes into a script.
    """

    root: str

    @classmethod
    def of(cls, project: Path, root: str | None = None) -> Places:
        """Below ``root``, or below ``voicehub/`` and the name of the project's folder.

        Raises:
            UsageError: ``root`` cannot be the name of a folder there.
        """
        if root is None:
            return cls(f"voicehub/{project.resolve().name or 'project'}")
        cleaned = root.removeprefix("~/").rstrip("/")
        parts = cleaned.split("/")
        if cleaned in ("", ".", "~") or ".." in parts or cleaned.startswith(("-", "~")):
            raise UsageError(
                f"--root {root}: expected a folder on the host, relative to the home directory or "
                "absolute, without '..'."
            )
        if any(ord(character) < 32 for character in cleaned):
            raise UsageError("--root: control characters cannot be in the name of a folder.")
        return cls(cleaned)

    @property
    def project(self) -> str:
        """The files of the project; commands run here."""
        return f"{self.root}/project"

    @property
    def environment(self) -> str:
        """The Python environment."""
        return f"{self.root}/env"

    @property
    def python(self) -> str:
        """Its interpreter."""
        return f"{self.environment}/bin/python"

    @property
    def sources(self) -> str:
        """Packages that are installed here from a checkout."""
        return f"{self.root}/sources"

    @property
    def sent(self) -> str:
        """The list of project files that the last deploy sent, each ended by a zero byte."""
        return f"{self.root}/sent-files"

    @property
    def runs(self) -> str:
        """One folder a run."""
        return f"{self.root}/runs"

    def run(self, name: str) -> str:
        """The folder of one run.

        Raises:
            UsageError: the name is none.
        """
        if not _RUN_NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is no name of a run: letters, digits, '.', '_' and '-', at most 64, a "
                "letter or digit first."
            )
        return f"{self.runs}/{name}"


def quoted(path: str) -> str:
    """A path as one word of a shell script, never taken for an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
