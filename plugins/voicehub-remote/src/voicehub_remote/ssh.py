"""A host: run scripts there, show their output as it comes, send and fetch files."""

from __future__ import annotations

import codecs
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TextIO

from voicehub.cli.output import say
from voicehub_remote.connection import SharedConnection
from voicehub_remote.errors import (
    CommandError,
    ConnectionLostError,
    MissingToolError,
    RemoteTimeoutError,
)
from voicehub_remote.explain import NO_SPACE, how_to_install, why_no_connection
from voicehub_remote.failures import Done, failure
from voicehub_remote.rsync import Sent, Transfer, read_report
from voicehub_remote.shell_words import one_line
from voicehub_remote.target import Target

# What the login shell's own files print stands before it, and is nobody's answer.
_BEGIN = "voicehub-begin"
_CUT_OFF = "connection unexpectedly closed"  # as rsync says it
SSH_FAILED = 255  # ssh's own exit code; a command of the host may end with it as well


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
        words = self._words(f"echo {_BEGIN}\n{script}")
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
        noise, begin, out = _text(ended.stdout).partition(f"{_BEGIN}\n")
        done = Done(ended.returncode, out if begin else noise, _text(ended.stderr))
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
        errors = _Reader(process.stderr, _printer(sys.stderr))
        stream = sys.stderr if self.json_mode else sys.stdout
        output = on_output or _printer(stream)
        try:
            for piece in iter(lambda: _read(process.stdout), b""):
                output(piece)
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
                # It holds our end of the script's output until the script ends.
                self._connection.close()
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
        """Raise where it was the connection that failed; the next command then makes another."""
        if done.code == 0:
            return
        cut_off = done.code == SSH_FAILED or _CUT_OFF in done.err
        if self._connection.is_open and not cut_off:
            return
        reason = why_no_connection(self.target, done.err, was_open=True)
        # A session that breaks off may end without a word, before the connection notices.
        if not self._connection.works():
            self._connection.close()
            raise reason or ConnectionLostError(
                f"{self.target}: the connection broke off. A training run in tmux goes on there: "
                f"`voicehub remote attach {self.target}` comes back to it."
            )
        if reason is not None and done.code == SSH_FAILED:
            raise reason

    def _failure(self, done: Done, what: str) -> CommandError:
        return failure(self.target, done, what, self.folder, self._ask)

    def _ask(self, script: str) -> str:
        """The output of a script, however it ends."""
        ended = subprocess.run(
            self._words(script), stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        return _text(ended.stdout)


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


def _printer(stream: TextIO) -> Callable[[bytes], None]:
    """Prints pieces of text, of which one may end within a character."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(piece: bytes) -> None:
        stream.write(decoder.decode(piece))
        stream.flush()

    return write


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
