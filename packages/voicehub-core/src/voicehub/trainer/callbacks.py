"""Callbacks: they watch a run and may ask, through ``TrainerControl``, for it to log, evaluate,
save or stop. They never touch weights or gradients."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.state import TrainerControl, TrainerState

logger = logging.getLogger(__name__)

EVENTS = (
    "on_init_end",
    "on_train_begin",
    "on_train_end",
    "on_epoch_begin",
    "on_epoch_end",
    "on_step_begin",
    "on_pre_optimizer_step",
    "on_optimizer_step",
    "on_substep_end",
    "on_step_end",
    "on_evaluate",
    "on_prediction_step",
    "on_predict",
    "on_log",
    "on_save",
    "on_checkpoint_saved",
    "on_step_skipped",
    "on_alert",
    "on_media",
    "on_train_error",
)


class TrainerCallback:
    """Override the events you need; each gets ``(args, state, control, **context)``.

    A callback with ``state_dict`` / ``load_state_dict`` is stateful: its state (JSON values) is
    part of every checkpoint and its class and order part of the exact-resume signature. One that
    sets ``state_name`` is stored under that name and is no part of the signature: for callbacks
    that only watch, such as reporters.
    Events: see ``EVENTS``. Context holds ``model``, ``adapter``, ``optimizers``, ``schedulers``,
    and by event ``logs`` (on_log), ``metrics`` (on_evaluate), ``checkpoint`` (on_save,
    on_checkpoint_saved), ``reason`` and ``ids`` (on_step_skipped), ``alert`` (on_alert),
    ``media`` (on_media), ``error`` (on_train_error).
    """

    state_name: str | None = None

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """The Trainer is built."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Before the first update of this process, after a checkpoint was loaded."""

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """After the last update and save."""

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Before the first batch of an epoch, or of what is left of it after a resume."""

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """After the last batch of an epoch."""

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Before an accumulation window."""

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Gradients are final (normalised, checked, clipped)."""

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """The weights have moved, gradients still exist."""

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """After a micro-batch that is not the last of its window."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """After an update; ``state.global_step`` counts it."""

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """After an evaluation; ``context['metrics']``."""

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """After one evaluation batch."""

    def on_predict(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """After ``predict``; ``context['metrics']``."""

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """``context['logs']`` was appended to ``state.log_history``."""

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """A checkpoint is about to be written."""

    def on_checkpoint_saved(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """``context['checkpoint']`` is complete on disk."""

    def on_step_skipped(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """An update was skipped: ``context['reason']``, ``context['ids']``."""

    def on_alert(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """``context['alert']``: a named health alert with advice."""

    def on_media(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """``context['media']``: audio, pictures and texts by name (``Trainer.log_media``)."""

    def on_train_error(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Training ends with ``context['error']``; close what is open."""


def overrides(callback: Any, event: str) -> bool:
    """Whether ``callback`` does anything at ``event``."""
    method = getattr(callback, event, None)
    inherited = getattr(method, "__func__", None) is getattr(TrainerCallback, event)
    return method is not None and not inherited


class CallbackHandler:
    """Calls the callbacks in order. An event nobody overrides costs one dictionary look-up."""

    def __init__(self, callbacks: Iterable[TrainerCallback | type[TrainerCallback]]) -> None:
        self.callbacks: list[TrainerCallback] = []
        self.context: dict[str, Any] = {}
        for callback in callbacks:
            self.add(callback)

    def add(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """Append a callback; a class is instantiated."""
        instance = callback() if isinstance(callback, type) else callback
        if not callable(getattr(instance, "on_train_begin", None)):
            raise TypeError(f"A callback must derive from TrainerCallback, got {instance!r}.")
        self.callbacks.append(instance)
        self._index()

    def remove(self, callback: TrainerCallback | type[TrainerCallback]) -> TrainerCallback | None:
        """Take out one callback, named by instance or class, and return it."""
        for known in self.callbacks:
            if known is callback or (isinstance(callback, type) and type(known) is callback):
                self.callbacks.remove(known)
                self._index()
                return known
        return None

    def _index(self) -> None:
        self._listeners: dict[str, list[Any]] = {event: [] for event in EVENTS}
        for callback in self.callbacks:
            for event in EVENTS:
                if overrides(callback, event):
                    self._listeners[event].append(getattr(callback, event))

    def listens(self, event: str) -> bool:
        """Whether any callback overrides ``event``; lets the loop skip building its context."""
        return bool(self._listeners[event])

    def fire(
        self,
        event: str,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **context: Any,
    ) -> None:
        """Call ``event`` on every callback that overrides it."""
        listeners = self._listeners[event]
        if not listeners:
            return
        merged = {**self.context, **context}
        for listener in listeners:
            listener(args, state, control, **merged)

    def stateful(self) -> list[tuple[str, TrainerCallback]]:
        """Callbacks with state, by their ``state_name``, or a name that class and position make."""
        named: list[tuple[str, TrainerCallback]] = []
        position = 0
        for callback in self.callbacks:
            if not callable(getattr(callback, "state_dict", None)):
                continue
            name = getattr(callback, "state_name", None)
            if name is None:
                name = f"{position}:{type(callback).__module__}.{type(callback).__qualname__}"
                position += 1
            named.append((name, callback))
        return named

    def state_dict(self) -> dict[str, Any]:
        """State of the stateful callbacks by name."""
        return {name: callback.state_dict() for name, callback in self.stateful()}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Give each stateful callback its state back."""
        for name, callback in self.stateful():
            if name in state:
                callback.load_state_dict(state[name])  # type: ignore[attr-defined]

    def load_state_of(self, callback: TrainerCallback, state: dict[str, Any]) -> None:
        """Give one stateful callback its state back, out of that of all."""
        for name, known in self.stateful():
            if known is callback:
                callback.load_state_dict(state[name])  # type: ignore[attr-defined]


class EarlyStoppingCallback(TrainerCallback):
    """Stops after ``early_stopping_patience`` evaluations without an improvement.

    The watched metric is ``args.metric_for_best_model``. A metric that is NaN counts as no
    improvement.
    """

    def __init__(
        self, early_stopping_patience: int = 1, early_stopping_threshold: float = 0.0
    ) -> None:
        if early_stopping_patience < 1:
            raise ConfigurationError("early_stopping_patience must be at least 1.")
        self.early_stopping_patience = early_stopping_patience
        self.early_stopping_threshold = early_stopping_threshold
        self.best: float | None = None
        self.bad_evaluations = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Refuse a run in which nothing is watched."""
        if not args.wants_best_model:
            raise ConfigurationError(
                "EarlyStoppingCallback needs metric_for_best_model (and an eval_strategy)."
            )

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Count evaluations without improvement."""
        from voicehub.trainer.best import metric_value

        value = metric_value(context["metrics"], args.metric_for_best_model or "loss")
        if value is None:
            return
        sign = 1.0 if args.greater_is_better else -1.0
        threshold = self.early_stopping_threshold
        improved = math.isfinite(value) and (
            self.best is None or sign * (value - self.best) > threshold
        )
        if improved:
            self.best, self.bad_evaluations = value, 0
            return
        self.bad_evaluations += 1
        if self.bad_evaluations >= self.early_stopping_patience:
            logger.info("Early stopping: no improvement in %d evaluations.", self.bad_evaluations)
            control.should_training_stop = True

    def state_dict(self) -> dict[str, Any]:
        """Best value and the count of evaluations since."""
        return {"best": self.best, "bad_evaluations": self.bad_evaluations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore ``state_dict``."""
        self.best = state["best"]
        self.bad_evaluations = state["bad_evaluations"]
