"""A host: run scripts there, show their output as it comes, send and fetch files."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType

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
from voicehub_remote.shell_words import one_line, through_any_shell, through_sh
from voicehub_remote.streaming import PassOn, printer, stream
from voicehub_remote.target import Target

# What the login shell's own files print stands before it, and is nobody's answer.
_BEGIN = "voicehub-begin"
_HELD = b"voicehub-held"
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
                input=None if stdin is None else os.fsencode(stdin),
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

    def show(self, script: str, *, what: str, on_output: PassOn | None = None) -> int:
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
        code, said = stream(
            self._words(script),
            on_output=on_output or self.printer(),
            on_error=printer(sys.stderr),
            # The connection holds our end of the script's output until the script ends.
            on_break=self._connection.close,
        )
        done = Done(code, "", _text(said))
        self._raise_if_lost(done)
        if done.code and NO_SPACE in done.err:
            raise self._failure(done, what)
        return done.code

    @contextmanager
    def hold(self, script: str, *, what: str) -> Iterator[None]:
        """Have a script run for the time of the block.

        Args:
            script: says ``voicehub-held`` when it has what it is for, and then reads its standard
                input to the end, which comes when the block or the connection ends.
            what: the deed, for errors.

        Raises:
            ConnectError, CommandError: as ``run``, where it ends before it says so.
        """
        if self.dry_run:
            self._show_command(script, True, ":")
            yield
            return
        self._connection.open()
        with TemporaryFile() as errors:
            holder = subprocess.Popen(
                self._words(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                start_new_session=True,  # Ctrl-C ends the block, and that ends it
            )  # fmt: skip
            with holder:
                assert holder.stdin is not None and holder.stdout is not None
                if not any(line.strip() == _HELD for line in holder.stdout):
                    code = holder.wait()
                    errors.seek(0)
                    done = Done(code, "", _text(errors.read()))
                    self._raise_if_lost(done)
                    raise self._failure(done, what)
                yield
                # Leaving `with` closes its standard input and waits.

    def printer(self) -> PassOn:
        """Prints what a script writes to its standard output."""
        return printer(sys.stderr if self.json_mode else sys.stdout)

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
            self.local(one_line(words, stdin=_listed(transfer)))
            return Sent()
        self._connection.open()
        words = transfer.words(self._connection.words(), source, destination)
        listing, report = transfer.listing(), io.BytesIO()
        # Its report is read; for a person at a terminal, it counts as well.
        progress = printer(sys.stderr) if sys.stderr.isatty() else _ignore
        if sys.stderr.isatty():
            words.insert(1, "--info=progress2")

        def hear(piece: bytes) -> None:
            report.write(piece)
            progress(piece if b"\r" in piece else b"")

        try:
            code, said = stream(
                words,
                stdin=None if listing is None else os.fsencode(listing),
                environment={**os.environ, "LC_ALL": "C"},
                on_output=hear,
                on_error=_ignore,
            )
        except FileNotFoundError:
            message = f"There is no rsync on this machine. {how_to_install('rsync')}"
            raise MissingToolError(message, code=127) from None
        done = Done(code, _text(report.getvalue()), _text(said))
        self._raise_if_lost(done)
        if done.code:
            raise self._failure(done, what)
        return read_report(done.out)

    def _words(self, script: str, *own: str) -> list[str]:
        connection = self._connection
        ours = through_sh if connection.speaks_sh else through_any_shell
        return _command([*connection.words(), *own], self.target, ours(script))

    def _show_command(self, script: str, reads: bool, stdin_shown: str | None, *own: str) -> None:
        shown = stdin_shown or ("cat -" if reads else None)
        words = _command(self.target.ssh(*own), self.target, through_sh(script))
        self.local(one_line(words, stdin=shown))

    def say(self, text: str) -> None:
        """Print a line for a person."""
        say(text, json_mode=self.json_mode)

    def local(self, line: str) -> None:
        """In a dry run, show a command that this machine runs."""
        if self.dry_run:
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


def _command(ssh: Sequence[str], target: Target, line: str) -> list[str]:
    return [*ssh, "--", target.destination, line]


def _ignore(_: bytes) -> None:
    pass


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
