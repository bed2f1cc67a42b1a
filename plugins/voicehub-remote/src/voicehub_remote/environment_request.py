"""What the environment on the host shall be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from voicehub.cli.output import UsageError


@dataclass(frozen=True)
class EnvironmentRequest:
    """What the environment shall be.

    Attributes:
        python: interpreter of the host that has torch; None looks for one.
        requirements: file with further requirements; None: there is none.
        place: its path within the project, empty where it lies elsewhere.
        cpu: a host without working CUDA will do.
        with_dependencies: False installs what is named, without what that requires.
    """

    python: str | None = None
    requirements: Path | None = None
    place: str = ""
    cpu: bool = False
    with_dependencies: bool = True


def find_requirements(project: Path, asked: Path | None) -> Path | None:
    """The file that is asked for, or the project's ``requirements.txt`` where there is one.

    Raises:
        UsageError: what is asked for is not there.
    """
    if asked is not None:
        if not asked.is_file():
            raise UsageError(f"--requirements {asked}: there is no such file.")
        return asked
    usual = project / "requirements.txt"
    return usual if usual.is_file() else None


def place_of(project: Path, requirements: Path | None) -> str:
    """The path of the file within the project, empty where it lies elsewhere or there is none."""
    if requirements is None:
        return ""
    path, home = requirements.resolve(), project.resolve()
    return path.relative_to(home).as_posix() if path.is_relative_to(home) else ""
