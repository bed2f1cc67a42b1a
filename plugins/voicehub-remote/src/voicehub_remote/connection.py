"""One ssh connection that all commands of a verb share, so that only the first must log in."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from voicehub_remote.errors import ConnectError, MissingToolError, UnreachableError
from voicehub_remote.explain import how_to_install, why_no_connection
from voicehub_remote.target import Target

_READY = b"voicehub-connected"
# Beyond the time to connect: keys are exchanged, we log in, and the login shell starts.
_LOGIN_SECONDS = 60
_CHECK_SECONDS = 10
_SHELLS = frozenset({"", "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox"})


class SharedConnection:
    """The connection, kept open by a process of ours: when we end, however that is, so does it.

    Later calls of ssh go through a socket in a private folder. Where ssh cannot make that, they
    connect by themselves, which works as well and takes longer.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._master: subprocess.Popen[bytes] | None = None
        self._shell = ""

    def __enter__(self) -> SharedConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether the process that holds the connection lives."""
        return self._master is not None and self._master.poll() is None

    @property
    def speaks_sh(self) -> bool:
        """Whether the login shell there reads the quotes of sh; true where it does not tell."""
        return self._shell in _SHELLS

    def open(self) -> None:
        """Connect and log in, where that has not been done.

        Raises:
            ConnectError: says why not.
            MissingToolError: there is no ssh on this machine.
        """
        if self.is_open:
            return
        self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="vh-")
        errors = Path(self._folder.name) / "err"
        # `cat` ends when our end of its standard input does: nothing is left behind on the host.
        words = [*self.target.ssh("-M", "-S", self._socket), "--", self.target.destination]
        words.append(f'echo {_READY.decode()} "$SHELL"; exec cat >/dev/null')
        try:
            with errors.open("wb") as stream:
                self._master = subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stream,
                    start_new_session=True,  # Ctrl-C is for the command, not for the connection
                )
        except FileNotFoundError:
            self.close()
            message = f"There is no ssh on this machine. {how_to_install('ssh')}"
            raise MissingToolError(message, code=127) from None
        shell = _wait_for(self._master, self.target.connect_timeout + _LOGIN_SECONDS)
        if shell is None:
            self._master.kill()
            self._master.wait()
            text = errors.read_text(encoding="utf-8", errors="replace")
            self.close()
            raise self._reason(text)
        self._shell = shell.rpartition("/")[2]

    def words(self) -> list[str]:
        """ssh up to the destination, over the open connection where there is a socket."""
        if self.is_open and Path(self._socket).exists():
            return self.target.ssh("-S", self._socket)
        return self.target.ssh("-S", "none")

    def works(self) -> bool:
        """Whether a command still gets through."""
        if not self.is_open:
            return False
        if not Path(self._socket).exists():
            return True  # commands connect by themselves, and have said how that went
        # Where the socket is dead ssh would connect anew: that way is barred.
        words = self.target.ssh("-S", self._socket, "-o", "ProxyCommand=false")
        check = [*words, "--", self.target.destination, "true"]
        with suppress(subprocess.TimeoutExpired):
            ended = subprocess.run(check, capture_output=True, check=False, timeout=_CHECK_SECONDS)
            return ended.returncode == 0
        return False

    def close(self) -> None:
        """Hang up. Commands that still go through the connection end with it."""
        if self._master is not None:
            assert self._master.stdin is not None and self._master.stdout is not None
            self._master.stdin.close()
            self._master.terminate()  # it does not wait for a command that still runs there
            try:
                self._master.wait(timeout=3)
            except subprocess.TimeoutExpired:
                self._master.kill()
                self._master.wait()
            self._master.stdout.close()
            self._master = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    @property
    def _socket(self) -> str:
        assert self._folder is not None
        return os.fspath(Path(self._folder.name) / "s")

    def _reason(self, text: str) -> ConnectError:
        known = why_no_connection(self.target, text, was_open=False)
        said = text.strip() or "nothing; it did not answer in time, or ended without a word"
        return known or UnreachableError(f"{self.target}: no connection. ssh says: {said}")


def _wait_for(master: subprocess.Popen[bytes], seconds: float) -> str | None:
    """The login shell, once the host says that we are logged in; None where it does not.

    What its login scripts print is skipped.
    """
    assert master.stdout is not None
    until, heard = time.monotonic() + seconds, b""
    with selectors.DefaultSelector() as selector:
        selector.register(master.stdout, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0 and selector.select(left):
            piece = os.read(master.stdout.fileno(), 4096)
            if not piece:
                return None
            heard = heard[-4096:] + piece
            _, ready, behind = heard.partition(_READY)
            shell, line_end, _ = behind.partition(b"\n")
            if ready and line_end:
                return shell.decode("utf-8", errors="replace").strip()
    return None
