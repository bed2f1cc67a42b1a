"""Run a program of this machine and pass its output on as it comes."""

from __future__ import annotations

import codecs
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import IO, TextIO

PassOn = Callable[[bytes], None]
_KEPT = 8192


def stream(
    words: Sequence[str],
    *,
    stdin: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    on_output: PassOn,
    on_error: PassOn,
    on_break: Callable[[], None] = lambda: None,
) -> tuple[int, bytes]:
    """Run a program to its end; returns its exit code and the end of its standard error.

    Args:
        words: the program and its arguments.
        stdin: what it reads; None is nothing.
        environment: of the program; None is ours.
        on_output, on_error: take pieces of its two outputs.
        on_break: called where we are interrupted, after the program was told to end.

    Raises:
        FileNotFoundError: there is no such program.
    """
    with ExitStack() as stack:
        reads: int | IO[bytes] = subprocess.DEVNULL
        if stdin is not None:
            reads = stack.enter_context(TemporaryFile())
            reads.write(stdin)
            reads.seek(0)
        process = subprocess.Popen(
            words, stdin=reads, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        assert process.stdout is not None and process.stderr is not None
        errors = _Reader(process.stderr, on_error)
        try:
            for piece in _pieces(process.stdout):
                on_output(piece)
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
                on_break()
            errors.join()
            process.stdout.close()
        return process.returncode, errors.last


def printer(to: TextIO) -> PassOn:
    """Prints pieces of text, of which one may end within a character."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(piece: bytes) -> None:
        to.write(decoder.decode(piece))
        to.flush()

    return write


class LineFilter:
    """Passes on lines but those that begin in a certain way; for a program that prints lines."""

    def __init__(self, pass_on: PassOn, without: bytes) -> None:
        self._pass_on = pass_on
        self._without = without
        self._begun = b""

    def __call__(self, piece: bytes) -> None:
        *lines, self._begun = (self._begun + piece).split(b"\n")
        for line in lines:
            if not line.startswith(self._without):
                self._pass_on(line + b"\n")

    def end(self) -> None:
        """Pass on a last line that has no end."""
        if self._begun:
            self._pass_on(self._begun)
            self._begun = b""


def _pieces(source: IO[bytes]) -> Iterator[bytes]:
    """What can be read, as soon as it can."""
    return iter(lambda: os.read(source.fileno(), 65536), b"")


class _Reader(threading.Thread):
    """Passes a stream on, and keeps its end."""

    def __init__(self, source: IO[bytes], pass_on: PassOn) -> None:
        super().__init__(daemon=True)
        self.last = b""
        self._source = source
        self._pass_on = pass_on
        self.start()

    def run(self) -> None:
        for piece in _pieces(self._source):
            self.last = (self.last + piece)[-_KEPT:]
            self._pass_on(piece)
        self._source.close()
