"""Work for other processes, which find it here."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from voicehub.errors import DataError
from voicehub_data.shared_work import Tell


class OddError(Exception):
    """Cannot be made again from what it keeps."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


@dataclass(frozen=True)
class Numbers:
    """Writes a file for each unit, and fails or dies at one of them.

    Attributes:
        folder: where to.
        bad: the unit that ends badly.
        how: "die", "exit", "raise" or "odd".
    """

    folder: Path
    bad: int | None = None
    how: str = ""

    def run(self, units: Sequence[int], tell: Tell) -> None:
        for unit in units:
            tell.at(f"{unit}.wav")
            if unit == self.bad:
                self._fail()
            hears = signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
            said = f"{os.getpid()} {os.environ['OMP_NUM_THREADS']} {hears}"
            (self.folder / str(unit)).write_text(said)
            tell.done(10)

    def _fail(self) -> None:
        if self.how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "exit":
            os._exit(3)
        if self.how == "odd":
            raise OddError("this", "that")
        raise DataError("5.wav is empty.")
