"""``Reporter``: what reporters of all kinds share, so that one is written in four methods."""

from __future__ import annotations

import abc
import importlib.util
import re
from collections.abc import Mapping, Sequence
from typing import Any

from voicehub.errors import OptionalDependencyError
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.media import Media, Text
from voicehub.trainer.state import TrainerControl, TrainerState

GLOBAL_STEP = "train/global_step"
_NOT_METRICS = frozenset({"step", "time"})


class Reporter(TrainerCallback, abc.ABC):
    """Sends what a run logs to a service or a file.

    A subclass opens, writes and closes; everything else is here: only the world-primary process
    reports; the run is opened at its first event; metrics are named ``train/…``,
    ``eval/<split>/…``, ``test/…`` beside ``train/global_step``; the run's id is part of every
    checkpoint, so that a resume continues the same run; the run is closed at the end of training
    and on an error. What is reported outside of training opens the run again, and closes it.

    Any method may raise: the Trainer warns once and goes on.
    """

    def __init__(self) -> None:
        self.run_id: str | None = None
        self._is_open = False
        self._in_training = False
        self._gave_up = False

    # What a subclass writes.

    @abc.abstractmethod
    def open_run(
        self, args: TrainingArguments, state: TrainerState, run_id: str | None, **context: Any
    ) -> str:
        """Start a run, or continue ``run_id``; returns the id to continue it by."""

    @abc.abstractmethod
    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Numbers by name at a global step; ``train/global_step`` is among them."""

    @abc.abstractmethod
    def write_media(self, media: Mapping[str, Media], step: int) -> None:
        """Audio, pictures and texts by name at a global step."""

    @abc.abstractmethod
    def close_run(self, *, failed: bool) -> None:
        """Finish the run that ``open_run`` started; leave one that the user opened alone."""

    # Events.

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Open the run."""
        self._in_training, self._gave_up = True, False
        self._ready(args, state, context)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Write the numbers of a log row."""
        values = namespaced(context["logs"], context.get("prefix"), context.get("splits") or ())
        self._write(values, args, state, context)

    def on_predict(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Write the metrics of a prediction."""
        values = namespaced(context["metrics"], context.get("prefix") or "test")
        self._write(values, args, state, context)

    def on_media(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Write audio, pictures and texts."""
        if self._ready(args, state, context):
            self.write_media(context["media"], state.global_step)
            self._close_outside_training()

    def on_alert(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Write an alert as text."""
        if self._ready(args, state, context):
            self.write_media({"alert": Text(context["alert"])}, state.global_step)
            self._close_outside_training()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Close the run."""
        self._in_training = False
        self._close(failed=False)

    def on_train_error(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Close the run as a failed one."""
        self._in_training = False
        self._close(failed=True)

    def state_dict(self) -> dict[str, Any]:
        """The id of the run."""
        return {"run_id": self.run_id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue that run."""
        self.run_id = state.get("run_id")

    # Inside.

    def _ready(
        self, args: TrainingArguments, state: TrainerState, context: Mapping[str, Any]
    ) -> bool:
        """Whether this process reports; opens the run where it is not open yet."""
        if not state.is_world_process_zero or self._gave_up:
            return False
        if not self._is_open:
            self._gave_up = True  # until it has worked: one attempt, not one for every log row
            self.run_id = self.open_run(args, state, self.run_id, **context)
            self._is_open, self._gave_up = True, False
        return True

    def _write(
        self,
        values: dict[str, float],
        args: TrainingArguments,
        state: TrainerState,
        context: Mapping[str, Any],
    ) -> None:
        if values and self._ready(args, state, context):
            step = state.global_step
            self.write_scalars({**values, GLOBAL_STEP: float(step)}, step)
            self._close_outside_training()

    def _close_outside_training(self) -> None:
        if not self._in_training:
            self._close(failed=False)

    def _close(self, *, failed: bool) -> None:
        if self._is_open:
            self._is_open = False
            self.close_run(failed=failed)


def require_library(reporter: str, module: str) -> None:
    """Refuse at the start what would fail at the first event; imports nothing.

    Raises:
        OptionalDependencyError: ``module`` is not installed; names what to install.
    """
    if importlib.util.find_spec(module) is None:
        raise OptionalDependencyError(
            f"The reporter '{reporter}' needs '{module}', which is not installed: "
            f"pip install {module}"
        )


def namespaced(
    row: Mapping[str, Any], prefix: str | None = None, splits: Sequence[str] = ()
) -> dict[str, float]:
    """The numbers of a log row under the names that reporters use.

    Args:
        row: as in ``metrics.jsonl``; texts, ``step`` and ``time`` are left out.
        prefix: of an evaluation (``eval``, ``test``); None for a row of training.
        splits: names of the evaluated splits: ``eval_<split>_wer`` becomes ``eval/<split>/wer``.
    """
    numbers = {
        key: float(value)
        for key, value in row.items()
        if key not in _NOT_METRICS
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
    }
    if prefix is None:
        return {f"train/{key}": value for key, value in numbers.items()}
    # The longest name first: of 'dev' and 'dev_other', eval_dev_other_wer is the second's.
    names = sorted((re.escape(split) for split in splits if split), key=len, reverse=True)
    split = f"(?:({'|'.join(names)})_)?" if names else "()"
    pattern = re.compile(f"{re.escape(prefix)}_{split}(.+)")
    found = {}
    for key, value in numbers.items():
        match = pattern.fullmatch(key)
        if match is not None:
            found["/".join(part for part in (prefix, match[1], match[2]) if part)] = value
    return found
