"""Watches a run for the trouble that users otherwise find out about days later.

Each alert has a name and advice, is raised once, and goes to the callbacks, the metrics file and
through them to the screen and the report. The thresholds are set such that a healthy run raises
none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState

FLAT_AFTER_UPDATES = 300
FLAT_FALL = 0.02
LARGE_NORM = 100.0
LARGE_NORM_ROWS = 3
RISING_EVALUATIONS = 3

ADVICE = {
    "flat-loss": (
        "the training loss has fallen by less than {fall:.0%} in {updates} updates. Check that "
        "labels belong to their inputs, raise learning_rate, or look whether too much is frozen"
    ),
    "large-gradients": (
        "the gradient norm was over {limit:.0f} in {rows} log rows in a row (now {norm:.0f}). "
        "Lower learning_rate, warm up longer, or look for broken samples"
    ),
    "overfitting": (
        "the evaluation loss rose {times} times in a row while the training loss fell. Stop at "
        "the best checkpoint (early_stopping_patience, load_best_model_at_end), or regularise"
    ),
    "not-finite": (
        "an update was skipped because {reason}. The samples are named in the log; check them, or "
        "lower learning_rate"
    ),
}


@dataclass
class _Watched:
    """What must survive a resume, as JSON values."""

    raised: list[str] = field(default_factory=list)
    first_loss: float | None = None
    first_step: int = 0
    lowest_loss: float | None = None
    large_rows: int = 0
    last_evaluation: float | None = None
    loss_at_evaluation: float | None = None
    last_loss: float | None = None
    rising: int = 0


class HealthCallback(TrainerCallback):
    """Raises ``flat-loss``, ``large-gradients``, ``overfitting`` and ``not-finite``.

    A warm-up that never ends needs no alert: the schedule refuses it.

    Args:
        alert: told the name of an alert and its advice.
    """

    def __init__(self, alert: Callable[[str, str], None]) -> None:
        self._alert = alert
        self._watched = _Watched()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Look at training rows: losses and gradient norms."""
        logs = context["logs"]
        if "loss" not in logs:
            return
        watched, loss = self._watched, float(logs["loss"])
        watched.last_loss = loss
        if watched.first_loss is None:
            watched.first_loss, watched.first_step = loss, state.global_step
        lowest = watched.lowest_loss
        watched.lowest_loss = loss if lowest is None else min(lowest, loss)
        self._watch_loss(state.global_step)
        # A recipe with large weights in its loss has large gradients in health.
        limit = float(getattr(context.get("adapter"), "large_gradient_norm", LARGE_NORM))
        self._watch_norm(float(logs.get("grad_norm", 0.0)), limit, args, state)

    def _watch_loss(self, step: int) -> None:
        watched = self._watched
        assert watched.first_loss is not None and watched.lowest_loss is not None
        updates = step - watched.first_step
        fallen = watched.first_loss - watched.lowest_loss
        if updates >= FLAT_AFTER_UPDATES and fallen < FLAT_FALL * abs(watched.first_loss):
            self._raise("flat-loss", fall=FLAT_FALL, updates=updates)

    def _watch_norm(
        self, norm: float, limit: float, args: TrainingArguments, state: TrainerState
    ) -> None:
        watched = self._watched
        warm = state.global_step > args.get_warmup_steps(state.max_steps)
        watched.large_rows = watched.large_rows + 1 if warm and norm > limit else 0
        if watched.large_rows >= LARGE_NORM_ROWS:
            self._raise("large-gradients", limit=limit, rows=LARGE_NORM_ROWS, norm=norm)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Compare evaluation and training loss with those of the evaluation before."""
        watched, loss = self._watched, context["metrics"].get("eval_loss")
        if loss is None or not math.isfinite(loss):
            return
        before, training_before = watched.last_evaluation, watched.loss_at_evaluation
        watched.last_evaluation, watched.loss_at_evaluation = float(loss), watched.last_loss
        if before is None or training_before is None or watched.last_loss is None:
            return
        rose = loss > before and watched.last_loss < training_before
        watched.rising = watched.rising + 1 if rose else 0
        if watched.rising >= RISING_EVALUATIONS:
            self._raise("overfitting", times=RISING_EVALUATIONS)

    def on_step_skipped(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """The first update that was not finite."""
        self._raise("not-finite", reason=context["reason"])

    def _raise(self, name: str, **values: Any) -> None:
        if name not in self._watched.raised:
            self._watched.raised.append(name)
            self._alert(name, ADVICE[name].format(**values))

    def state_dict(self) -> dict[str, Any]:
        """What was seen and raised so far."""
        return asdict(self._watched)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` stood."""
        self._watched = _Watched(**state)
