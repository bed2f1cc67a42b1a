"""The log of a run as it grows, over connections that may break."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from voicehub.cli.output import Interrupted
from voicehub_remote.errors import ConnectError, ConnectionLostError
from voicehub_remote.places import Places
from voicehub_remote.session import NoRunError, RunState, on_host

if TYPE_CHECKING:
    from voicehub_remote.session import Session

#: The host sends it in front of the log, as start files of the login shell may print something
#: before, and behind it, in front of the state.
MARK = b"\x1evoicehub-remote\x1e"
#: Seconds between the tries to come back to a host, about five minutes together.
WAITS = (1.0, 2.0, 4.0, 8.0, 15.0, *([30.0] * 9))


class Detached(Interrupted):
    """The user stopped watching; the run goes on."""


class Follower:
    """Passes a run's log on until the run ends, and takes it up where a connection broke.

    Every byte of the log is passed on once: the place in it is counted here.

    Args:
        session: the run.
        position: the byte of the log to begin with.
        write: takes the pieces of the log.
        tell: takes lines about the connection.
        waits: seconds before each new try after the connection was lost. A connection that
            brings something ends the count.
    """

    def __init__(
        self,
        session: Session,
        position: int,
        *,
        write: Callable[[bytes], None],
        tell: Callable[[str], None],
        waits: tuple[float, ...] = WAITS,
    ) -> None:
        self.session, self.position = session, position
        self.write, self.tell, self.waits = write, tell, waits
        self._trailer: bytes | None = None
        self._held, self._begun = b"", False
        self._tries = 0

    def run(self) -> RunState:
        """Follow to the end and return the state of the run.

        Raises:
            ConnectionLostError: the host could not be reached again; says how to come back.
            NoRunError: there is no log.
            Detached: by Ctrl-C.
        """
        try:
            while True:
                state = self._once()
                if state is not None:
                    return state
        except KeyboardInterrupt:
            raise Detached(f"detached; the run goes on. {come_back(self.session)}") from None

    def _once(self) -> RunState | None:
        """Follow over one connection; None where it broke, after the time to wait then."""
        self._trailer, self._held, self._begun = None, b"", False
        session = self.session
        script = on_host(
            "follow", root=session.places.root, run=session.run, position=str(self.position)
        )
        what = f"follow the run {session.run}"
        try:
            code = session.remote.show(script, what=what, on_output=self._take)
        except ConnectError as error:
            self._wait(str(error))
            return None
        if session.remote.dry_run:
            return RunState(session.run, "none")
        if code == 1:
            raise NoRunError(
                f"The host has no log of a run {session.run}. See `voicehub remote status`."
            )
        if self._trailer is None:
            self._wait(f"The log of {session.run} broke off (exit code {code}).")
            return None
        return RunState.parse(self._trailer.decode("utf-8", errors="replace"))

    def _take(self, piece: bytes) -> None:
        if self._trailer is not None:
            self._trailer += piece
            return
        text, mark, rest = (self._held + piece).partition(MARK)
        # What may be the beginning of the mark waits for the next piece.
        text, self._held = (text, b"") if mark else _split(text)
        if self._begun and text:
            self._tries = 0
            self.position += len(text)
            self.write(text)
        if mark and self._begun:
            self._trailer = rest
        elif mark:
            self._begun = True
            self._take(rest)

    def _wait(self, reason: str) -> None:
        if self._tries >= len(self.waits):
            raise ConnectionLostError(
                f"{reason}\nThe run goes on without us. {come_back(self.session)}"
            ) from None
        seconds = self.waits[self._tries]
        self._tries += 1
        self.tell(f"connection lost; the run goes on. Trying again in {seconds:g} s ...")
        time.sleep(seconds)


def _split(text: bytes) -> tuple[bytes, bytes]:
    """``text`` without, and its end with, what ``MARK`` begins with."""
    for length in range(min(len(MARK) - 1, len(text)), 0, -1):
        if text.endswith(MARK[:length]):
            return text[:-length], text[-length:]
    return text, b""


def come_back(session: Session) -> str:
    """How to see a run again, from the folder that we are in."""
    target, root = session.remote.target, session.places.root
    words = ["voicehub", "remote", "attach", str(target), "--name", session.run]
    if root != Places.of(Path()).root:
        words += ["--root", root]
    if target.identity is not None:
        words += ["--identity", str(target.identity)]
    words += [word for option in target.options for word in ("--ssh-option", option)]
    return f"Come back with:\n  {shlex.join(words)}"


def to_stream(json_mode: bool) -> Callable[[bytes], None]:
    """Writes pieces of a log for a person: to standard output, or beside the JSON."""

    def write(piece: bytes) -> None:
        stream = sys.stderr if json_mode else sys.stdout
        buffer = getattr(stream, "buffer", None)
        if buffer is None:
            stream.write(piece.decode("utf-8", errors="replace"))
        else:
            stream.flush()
            buffer.write(piece)
        stream.flush()

    return write
