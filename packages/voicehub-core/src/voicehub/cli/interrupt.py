"""Ctrl-C or SIGTERM in training: the first stops after the update and saves, a second at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from voicehub.cli.processes import is_primary
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState

_FIRST = "\nStopping after this update, with a checkpoint. Once more stops at once."
#: Seconds in which the launcher of several processes may pass on what reached them already.
_ECHO = 3.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; what schedulers send before they kill


class StopOnInterrupt(TrainerCallback):
    """Asks the loop to save and stop once ``requested`` is set.

    Only while ``listening()``: before and after training Ctrl-C is Python's own.
    """

    def __init__(self) -> None:
        self.requested = False
        self._first = 0.0

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """The weights are whole here, so this is where to stop."""
        if self.requested:
            control.should_save = True
            control.should_training_stop = True

    def _is_echo(self) -> bool:
        """torchrun sends its processes the signal that the terminal has sent them already."""
        launched = "TORCHELASTIC_RUN_ID" in os.environ
        return launched and time.monotonic() - self._first < _ECHO

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over the signals for the time of the block; threads other than the main cannot."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}

        def handle(number: int, frame: FrameType | None) -> None:
            if self.requested:
                if self._is_echo():
                    return
                raise KeyboardInterrupt
            self.requested, self._first = True, time.monotonic()
            if is_primary():
                print(_FIRST, file=sys.stderr, flush=True)

        for number in _SIGNALS:
            signal.signal(number, handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
