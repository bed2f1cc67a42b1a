"""Blank collapse: a model that learns to write nothing, caught and explained.

CTC models write only blanks for a while after every start. What is wrong is to stay there. The
callback looks at the share of empty hypotheses (or, without evaluation, of blank frames), and
when it stays near one, names what is known to cause it: facts of the pre-flight, the learning
rate, the course of the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState

#: Above this share hypotheses count as collapsed; blank frames need more, since most frames of a
#: healthy model are blank too.
EMPTY_SHARE, BLANK_SHARE = 0.9, 0.999
#: Part of the run in which writing nothing is no news, and evaluations in a row that make it one.
GRACE_FRACTION, PATIENCE = 0.3, 2
#: Learning rates above these are rarely survived.
FINE_TUNING_RATE, SCRATCH_RATE = 5e-4, 1e-2
_LARGE_NORM = 100.0


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A cause of collapse that was seen before the first step.

    Attributes:
        name: for example ``label-case``.
        text: what was found and what to do.
    """

    name: str
    text: str


def learning_rate_suspicion(learning_rate: float, *, fine_tuning: bool) -> Suspicion | None:
    """Return a suspicion where the learning rate is beyond what such models take."""
    limit = FINE_TUNING_RATE if fine_tuning else SCRATCH_RATE
    if learning_rate <= limit:
        return None
    what = "fine-tuning a pretrained encoder" if fine_tuning else "training from scratch"
    return Suspicion(
        "learning-rate",
        f"the learning rate {learning_rate:g} is over {limit:g}, which {what} rarely survives; "
        "lower training.learning_rate",
    )


@dataclass
class _Seen:
    """What must survive a resume, as JSON values."""

    raised: bool = False
    in_a_row: int = 0
    first_loss: float | None = None
    lowest_loss: float | None = None
    last_loss: float | None = None
    largest_norm: float = 0.0
    learning_rate: float = 0.0


class CollapseMonitor(TrainerCallback):
    """Raises ``blank-collapse`` once, with its likely causes.

    Args:
        suspicions: found by the pre-flight, the likeliest first.
        fine_tuning: whether a pretrained encoder is trained.
    """

    def __init__(self, suspicions: Sequence[Suspicion] = (), *, fine_tuning: bool = False) -> None:
        self.suspicions = tuple(suspicions)
        self.fine_tuning = fine_tuning
        self._seen = _Seen()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Follow loss and gradient norm; without evaluations, look at training batches."""
        logs = context["logs"]
        if "loss" not in logs:
            return
        seen, loss = self._seen, float(logs["loss"])
        seen.last_loss = loss
        seen.first_loss = loss if seen.first_loss is None else seen.first_loss
        seen.lowest_loss = loss if seen.lowest_loss is None else min(seen.lowest_loss, loss)
        seen.largest_norm = max(seen.largest_norm, float(logs.get("grad_norm", 0.0)))
        seen.learning_rate = max(seen.learning_rate, float(logs.get("learning_rate", 0.0)))
        share = getattr(context.get("adapter"), "blank_share", None)
        if args.eval_strategy == "no" and share is not None:
            self._watch(share >= BLANK_SHARE, f"{share:.1%} of frames are blank", state, context)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Look at the share of empty hypotheses."""
        share = context["metrics"].get("eval_empty_share")
        if share is not None:
            what = f"{share:.0%} of the hypotheses are empty"
            self._watch(share >= EMPTY_SHARE, what, state, context)

    def _watch(
        self, collapsed: bool, what: str, state: TrainerState, context: dict[str, Any]
    ) -> None:
        seen = self._seen
        if state.global_step < GRACE_FRACTION * state.max_steps:
            return
        seen.in_a_row = seen.in_a_row + 1 if collapsed else 0
        last = state.global_step >= state.max_steps
        if seen.raised or not collapsed or (seen.in_a_row < PATIENCE and not last):
            return
        seen.raised = True
        causes = "; ".join(f"({s.name}) {s.text}" for s in self.causes())
        context["trainer"].alert(
            "blank-collapse",
            f"{what} at step {state.global_step} of {state.max_steps}: the model writes nothing. "
            f"Likely causes: {causes}",
        )

    def causes(self) -> list[Suspicion]:
        """Return what may be behind a collapse, the likeliest first."""
        seen, found = self._seen, list(self.suspicions)
        lowest, last, first = seen.lowest_loss, seen.last_loss, seen.first_loss
        rose = lowest is not None and last is not None and last > 1.2 * lowest
        known = {suspicion.name for suspicion in found}
        if "learning-rate" not in known and (rose or seen.largest_norm > _LARGE_NORM):
            found.append(
                Suspicion(
                    "learning-rate",
                    f"at learning rate {seen.learning_rate:g} the loss rose again (lowest "
                    f"{lowest or 0:.3g}, now {last or 0:.3g}; largest gradient norm "
                    f"{seen.largest_norm:.3g}); lower training.learning_rate or warm up longer",
                )
            )
        falling = first is not None and last is not None and last < 0.9 * first and not rose
        if falling:
            found.append(
                Suspicion(
                    "too-few-updates",
                    f"the loss is still falling ({first:.3g} to {last:.3g}), so more updates "
                    "(training.num_train_epochs) may be all that is missing",
                )
            )
        elif not found:
            found.append(
                Suspicion(
                    "nothing-learnt",
                    "the loss does not fall; check that transcripts belong to their audio, raise "
                    "training.learning_rate, or freeze less",
                )
            )
        return found

    def state_dict(self) -> dict[str, Any]:
        """What was seen so far."""
        return asdict(self._seen)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` stood."""
        self._seen = _Seen(**state)
