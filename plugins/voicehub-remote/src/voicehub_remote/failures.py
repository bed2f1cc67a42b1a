"""How a script on the host ended, and the error that stands for a bad end."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from voicehub_remote.errors import CommandError, DiskFullError, MissingToolError
from voicehub_remote.explain import NO_SPACE, full_path, how_to_install, missing_tool, tail_of
from voicehub_remote.target import Target


@dataclass(frozen=True)
class Done:
    """How a script ended: its exit code, and what it wrote."""

    code: int
    out: str = ""
    err: str = ""


def failure(
    target: Target, done: Done, what: str, folder: str, ask: Callable[[str], str]
) -> CommandError:
    """The error for a script that failed.

    Args:
        target: where it ran.
        done: how it ended.
        what: the deed: "make the folder".
        folder: whose disk is looked at when a message about a full one names no path.
        ask: runs a script there and returns its output.
    """
    said = done.err if done.err.strip() else done.out
    # Some shells say no more than "I/O error" for a full disk.
    if NO_SPACE in said or "I/O error" in said:
        disk = _Disk.look(full_path(done.err) or folder, ask)
        if NO_SPACE in said or disk.free == 0:
            return DiskFullError(
                f"{target}: could not {what}: the disk is full at {disk.words()}. Free some space "
                "there, or name a folder on another disk with --root.",
                code=done.code,
                output=done.err,
            )
    tool = missing_tool(said) if done.code in (127, 12, 126) else None
    if tool is not None:
        return MissingToolError(
            f"{target}: could not {what}: {tool} is not installed there. "
            f"{how_to_install(tool.rpartition('/')[2])}",
            code=done.code,
            output=done.err,
        )
    return CommandError(
        f"{target}: could not {what}{_told(done, said)}", code=done.code, output=done.err
    )


def _told(done: Done, said: str) -> str:
    if "is your shell clean" in said:
        return (
            ": the login shell there prints something by itself, which disturbs rsync. Begin its "
            "start file (~/.bashrc) with `case $- in *i*) ;; *) return ;; esac`, so that it prints "
            "only where a terminal is."
        )
    shown = f":\n{tail_of(said)}" if said.strip() else "; it said nothing."
    return f" (exit code {done.code}){shown}"


@dataclass(frozen=True)
class _Disk:
    """A folder on the disk, and the KiB that are free there; None where nobody knows."""

    folder: str
    free: int | None

    @classmethod
    def look(cls, path: str, ask: Callable[[str], str]) -> _Disk:
        # The folder may not be there yet: the nearest one above it is on the same disk.
        script = (
            f'p={shlex.quote(path)}; while [ ! -d "$p" ]; do q=$(dirname -- "$p"); '
            '[ "$q" = "$p" ] && break; p=$q; done; cd "$p" 2>/dev/null; pwd; df -Pk . | tail -n 1'
        )
        folder, _, row = ask(script).strip().partition("\n")
        cells = row.split()
        known = len(cells) > 4 and cells[3].isdigit()
        return cls(folder or path, int(cells[3]) if known else None)

    def words(self) -> str:
        if self.free is None:
            return f"{self.folder} (free space unknown)"
        return f"{self.folder} ({self.free / 1024:.1f} MB are free)"
