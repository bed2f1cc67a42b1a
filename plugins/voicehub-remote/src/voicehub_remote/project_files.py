"""Which files belong to a project: those that git sees or would see."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from voicehub.cli.output import UsageError
from voicehub_remote.secret_files import refuse_secret_files

_LIST = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")


def _ignore(_: str) -> None:
    pass


def listing_command(folder: Path) -> str:
    """Shell that writes the list, for a dry run."""
    return shlex.join(["git", "-C", str(folder.absolute()), *_LIST])


def visible_files(folder: Path, note: Callable[[str], None] = _ignore) -> list[str]:
    """Paths relative to ``folder``, sorted: tracked ones and those that .gitignore does not name.

    Files of submodules are among them, deleted ones are not.

    Args:
        folder: of the project; it may lie within a repository.
        note: takes remarks about what is left out; by default they are not wanted.

    Raises:
        UsageError: git does not know the folder, or a name cannot be sent.
    """
    if not folder.is_dir():
        raise UsageError(f"--project {folder}: there is no such folder.")
    found = sorted(set(_listed(folder, "", note)))
    if not found:
        raise UsageError(f"{folder}: git sees no file there, so there is nothing to send.")
    try:
        "".join(found).encode("utf-8")
    except UnicodeEncodeError as error:
        near = error.object[max(error.start - 40, 0) : error.end + 40]
        raise UsageError(
            f"{folder}: the name of a file is not UTF-8: {near!r}. Rename it, or name it in "
            ".gitignore."
        ) from None
    return found


def check_files(folder: Path, names: Sequence[str], allowed: Sequence[str]) -> None:
    """Refuse files that look like secrets, also behind links that lead out of the project.

    Raises:
        UsageError: names them.
    """
    home = folder.resolve()
    seen = list(names)
    for name in names:
        path = folder / name
        if path.is_symlink():
            to = Path(os.path.realpath(path))  # as it is: a link to itself is no error of Python
            seen += [] if to.is_relative_to(home) else [to.as_posix()]
            if not to.exists():
                raise UsageError(
                    f"{path} is a link to {path.readlink()}, which is not there. Remove it, or "
                    "name it in .gitignore."
                )
    refuse_secret_files(seen, allowed, "the project")


def _listed(folder: Path, prefix: str, note: Callable[[str], None]) -> Iterator[str]:
    for name in _git(folder):
        path = folder / name
        if path.is_dir() and not path.is_symlink():  # a repository within this one
            inner = name.rstrip("/")
            if (path / ".git").exists():
                yield from _listed(path, f"{prefix}{inner}/", note)
            else:
                note(f"{path}: the submodule is not checked out and is left out.")
        elif path.is_dir() and _leads_out(path, prefix + name):
            note(
                f"{path}: a link to a folder outside of the project, which is left out. What is in "
                f"it goes along with --data {shlex.quote(str(path))}."
            )
        elif os.path.lexists(path):
            yield prefix + name


def _leads_out(link: Path, name: str) -> bool:
    """Whether a link cannot be sent as one, as rsync sees it: where it leads is not looked at."""
    to = Path(name).parent / link.readlink()
    return to.is_absolute() or Path(os.path.normpath(to)).parts[:1] == ("..",)


def _git(folder: Path) -> list[str]:
    command = ["git", "-C", str(folder), *_LIST]
    try:
        result = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError("There is no git on this machine: it lists the project's files.") from None
    if result.returncode:
        said = result.stderr.decode("utf-8", errors="replace").strip()
        raise UsageError(
            f"{folder.absolute()}: git cannot list the project's files: {said} What is sent is "
            "what git sees: run `git init` there, with a .gitignore for what shall stay here."
        )
    return [os.fsdecode(name) for name in result.stdout.split(b"\0") if name]
