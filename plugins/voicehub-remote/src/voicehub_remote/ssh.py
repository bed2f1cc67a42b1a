"""A host: run scripts there, show their output as it comes, send and fetch files."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from voicehub.cli.output import say
from voicehub_remote.connection import SharedConnection
from voicehub_remote.errors import (
    CommandError,
    ConnectionLostError,
    DiskFullError,
    MissingToolError,
    RemoteError,
    RemoteTimeoutError,
)
from voicehub_remote.explain import (
    NO_SPACE,
    full_path,
    how_to_install,
    missing_tool,
    tail_of,
    why_no_connection,
)
from voicehub_remote.rsync import Sent, Transfer, read_report
from voicehub_remote.shell_words import one_line
from voicehub_remote.target import Target

SSH_FAILED = 255  # ssh's own exit code; a command of the host may end with it as well


@dataclass(frozen=True)
class Done:
    """How a script ended: its exit code, and what it wrote."""

    code: int
    out: str = ""
    err: str = ""


class Remote:
    """A host behind ssh. Use it in a ``with``: leaving hangs up.

    Args:
        target: which host.
        dry_run: print every command as one line that can be copied, and run none. ``run`` then
            returns an empty success, ``show`` and ``terminal`` return 0.
        json_mode: standard output is for JSON: everything is printed to standard error.
        folder: on the host; whose disk a message about a full disk tells of when it names none.

    Attributes:
        commands: what a dry run has printed.
    """

    def __init__(
        self,
        target: Target,
        *,
        dry_run: bool = False,
        json_mode: bool = False,
        folder: str = ".",
    ) -> None:
        self.target = target
        self.dry_run = dry_run
        self.json_mode = json_mode
        self.folder = folder
        self.commands: list[str] = []
        self._connection = SharedConnection(target)

    def __enter__(self) -> Remote:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._connection.close()

    def run(
        self,
        script: str,
        *,
        what: str,
        stdin: str | None = None,
        stdin_shown: str | None = None,
        check: bool = True,
        timeout: float | None = None,
    ) -> Done:
        """Run a POSIX sh script in the home directory there.

        Args:
            script: it stands in the process list of both machines: no secret may be in it.
            what: the deed, for errors: "make the folder".
            stdin: for what must not be seen, and for what is long.
            stdin_shown: shell that a dry run prints in its place, such as ``cat FILE``.
            check: an exit code other than 0 is an error.
            timeout: seconds.

        Raises:
            ConnectError: there is no connection, or it broke off.
            CommandError: the script failed; a full disk and a missing program have classes of
                their own.
            RemoteTimeoutError: it did not end in time.
        """
        if self.dry_run:
            self._show_command(script, stdin is not None, stdin_shown)
            return Done(0)
        self._connection.open()
        words = self._words(script)
        try:
            ended = subprocess.run(
                words,
                input=None if stdin is None else stdin.encode(),
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RemoteTimeoutError(
                f"{self.target}: could not {what}: no answer in {timeout:g} s."
            ) from None
        done = Done(ended.returncode, _text(ended.stdout), _text(ended.stderr))
        self._raise_if_lost(done)
        if check and done.code:
            raise self._failure(done, what)
        return done

    def show(
        self, script: str, *, what: str, on_output: Callable[[bytes], None] | None = None
    ) -> int:
        """Run a script and pass its output on as it comes; returns its exit code.

        Args:
            script: as for ``run``.
            what: the deed, for errors.
            on_output: takes the pieces of standard output; by default they are printed.

        Raises:
            ConnectError: there is no connection, or it broke off.
        """
        if self.dry_run:
            self._show_command(script, False, None)
            return 0
        self._connection.open()
        process = subprocess.Popen(
            self._words(script),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None and process.stderr is not None
        errors = _Reader(process.stderr, lambda piece: _write(sys.stderr, piece))
        stream = sys.stderr if self.json_mode else sys.stdout
        output = on_output or (lambda piece: _write(stream, piece))
        try:
            for piece in iter(lambda: _read(process.stdout), b""):
                output(piece)
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            errors.join()
            process.stdout.close()
        done = Done(process.returncode, "", _text(errors.last))
        self._raise_if_lost(done)
        if done.code and NO_SPACE in done.err:
            raise self._failure(done, what)
        return done.code

    def terminal(self, script: str, *, what: str) -> int:
        """Run a script with this terminal as its own; returns its exit code."""
        if self.dry_run:
            self._show_command(script, False, None, "-t")
            return 0
        self._connection.open()
        return subprocess.run(self._words(script, "-t"), check=False).returncode

    def push(
        self, source: Path, destination: str, transfer: Transfer | None = None, *, what: str
    ) -> Sent:
        """Send a file, or what is in a folder, to a folder (or file name) of the host.

        Raises:
            ConnectError, CommandError: as ``run``.
        """
        local = _local(source)
        return self._rsync(transfer, local, self.target.rsync_path(destination), what)

    def pull(
        self, source: str, destination: Path, transfer: Transfer | None = None, *, what: str
    ) -> Sent:
        """Fetch a file, or with a ``/`` at the end what is in a folder, to a folder here.

        Raises:
            ConnectError, CommandError: as ``run``.
        """
        return self._rsync(transfer, self.target.rsync_path(source), str(destination), what)

    def _rsync(self, transfer: Transfer | None, source: str, destination: str, what: str) -> Sent:
        transfer = transfer or Transfer()
        if self.dry_run:
            words = transfer.words(self.target.ssh(), source, destination)
            self._print(one_line(words, stdin=_listed(transfer)))
            return Sent()
        self._connection.open()
        words = transfer.words(self._connection.words(), source, destination)
        listing = transfer.listing()
        try:
            ended = subprocess.run(
                words,
                input=None if listing is None else os.fsencode(listing),
                stdin=subprocess.DEVNULL if listing is None else None,
                capture_output=True,
                check=False,
                env={**os.environ, "LC_ALL": "C"},  # its report is read
            )
        except FileNotFoundError:
            message = f"There is no rsync on this machine. {how_to_install('rsync')}"
            raise MissingToolError(message, code=127) from None
        done = Done(ended.returncode, _text(ended.stdout), _text(ended.stderr))
        self._raise_if_lost(done)
        if done.code:
            raise self._failure(done, what)
        return read_report(done.out)

    def _words(self, script: str, *own: str) -> list[str]:
        return _command([*self._connection.words(), *own], self.target, script)

    def _show_command(self, script: str, reads: bool, stdin_shown: str | None, *own: str) -> None:
        shown = stdin_shown or ("cat -" if reads else None)
        self._print(one_line(_command(self.target.ssh(*own), self.target, script), stdin=shown))

    def say(self, text: str) -> None:
        """Print a line for a person."""
        say(text, json_mode=self.json_mode)

    def _print(self, line: str) -> None:
        self.commands.append(line)
        self.say(line)

    def _raise_if_lost(self, done: Done) -> None:
        is_open = self._connection.is_open
        if done.code == 0 or (is_open and done.code != SSH_FAILED):
            return
        reason = why_no_connection(self.target, done.err, was_open=True)
        if reason is not None:
            raise reason
        if not is_open:
            raise ConnectionLostError(
                f"{self.target}: the connection broke off. A training run in tmux goes on there: "
                f"`voicehub remote attach {self.target}` comes back to it."
            )

    def _failure(self, done: Done, what: str) -> RemoteError:
        said = done.err if done.err.strip() else done.out
        # Some shells say no more than "I/O error" for a full disk.
        if NO_SPACE in said or "I/O error" in said:
            full = self._disk_full(done, what, -1 if NO_SPACE in said else 0)
            if full is not None:
                return full
        tool = missing_tool(said) if done.code in (127, 12, 126) else None
        if tool is not None:
            return MissingToolError(
                f"{self.target}: could not {what}: {tool} is not installed there. "
                f"{how_to_install(tool.rpartition('/')[2])}",
                code=done.code,
                output=done.err,
            )
        told = f":\n{tail_of(said)}" if said.strip() else "; it said nothing."
        return CommandError(
            f"{self.target}: could not {what} (exit code {done.code}){told}",
            code=done.code,
            output=done.err,
        )

    def _disk_full(self, done: Done, what: str, least: int = -1) -> DiskFullError | None:
        """The error for a full disk; None where more than ``least`` KiB are free on it."""
        path = full_path(done.err) or self.folder
        # The folder may not be there yet: the nearest one above it is on the same disk.
        script = (
            f'p={shlex.quote(path)}; while [ ! -d "$p" ]; do q=$(dirname -- "$p"); '
            '[ "$q" = "$p" ] && break; p=$q; done; cd "$p" 2>/dev/null; pwd; df -Pk . | tail -n 1'
        )
        asked = subprocess.run(
            self._words(script), stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        folder, _, row = _text(asked.stdout).strip().partition("\n")
        cells = row.split()
        free = int(cells[3]) if len(cells) > 4 and cells[3].isdigit() else None
        if least >= 0 and (free is None or free > least):
            return None
        left = "free space unknown" if free is None else f"{free / 1024:.1f} MB are free"
        return DiskFullError(
            f"{self.target}: could not {what}: the disk is full at {folder or path} ({left}). Free "
            "some space there, or name a folder on another disk with --root.",
            code=done.code,
            output=done.err,
        )


class _Reader(threading.Thread):
    """Passes a stream on, and keeps its end."""

    def __init__(self, stream: IO[bytes], pass_on: Callable[[bytes], None]) -> None:
        super().__init__(daemon=True)
        self.last = b""
        self._stream = stream
        self._pass_on = pass_on
        self.start()

    def run(self) -> None:
        for piece in iter(lambda: _read(self._stream), b""):
            self.last = (self.last + piece)[-8192:]
            self._pass_on(piece)
        self._stream.close()


def _command(ssh: Sequence[str], target: Target, script: str) -> list[str]:
    """Through sh, whatever shell the user has there."""
    return [*ssh, "--", target.destination, f"exec sh -c {shlex.quote(script)}"]


def _read(stream: IO[bytes] | None) -> bytes:
    return os.read(stream.fileno(), 65536) if stream is not None else b""


def _write(stream: IO[str], piece: bytes) -> None:
    stream.write(_text(piece))
    stream.flush()


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _local(source: Path) -> str:
    """rsync sends what is in a folder when its name ends with a slash."""
    path = str(source.absolute())
    return f"{path}/" if source.is_dir() else path


def _listed(transfer: Transfer) -> str | None:
    if transfer.files is None:
        return None
    names = " ".join(shlex.quote(name) for name in transfer.files)
    return transfer.files_shown or f"printf '%s\\0' {names}"
