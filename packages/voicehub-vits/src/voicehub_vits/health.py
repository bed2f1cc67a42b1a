"""Watches the game between generator and discriminators, and names who loses while it happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState

KEY = "loss/discriminator/adversarial"
#: Loss a discriminator below which it has won: 0.5 for the sum of six.
WON = 0.5 / 6
#: Within this share of an undecided discriminator's 1/2 it sees nothing.
NEAR_UNDECIDED = 0.02
#: Log rows in a row that make it no accident.
ROWS = 5
#: Updates in which being undecided is no news: everything starts there.
GRACE_UPDATES = 200

ADVICE = {
    "discriminator-wins": (
        "the discriminators' loss is {loss:.2f} in {rows} log rows in a row, at step {step} "
        "(undecided is {undecided:.1f}): they tell rendered audio from recordings without fail, "
        "and the generator learns nothing from them any more. Lower their learning rate "
        "(training.param_groups), their weight (model.weights.discriminator) or their width "
        "(model.discriminator.width); with little data, stop at the checkpoint before"
    ),
    "discriminator-collapsed": (
        "the discriminators' loss has stayed at {loss:.2f} for {rows} log rows, at step {step}: "
        "{undecided:.1f} is what discriminators that see nothing have. What they teach is noise. "
        "Raise their learning rate or width, look whether their gradients are clipped away "
        "(training.max_grad_norm), and whether the segments hold speech"
    ),
}


@dataclass
class _Seen:
    """What must survive a resume, as JSON values."""

    raised: list[str] = field(default_factory=list)
    winning: int = 0
    collapsed: int = 0


class AdversarialMonitor(TrainerCallback):
    """Raises ``discriminator-wins`` and ``discriminator-collapsed``, each once.

    Args:
        sub_discriminators: how many there are.
        alert: told name and advice; by default the trainer's own.
    """

    def __init__(
        self, *, sub_discriminators: int = 6, alert: Callable[[str, str], None] | None = None
    ) -> None:
        self.count = sub_discriminators
        self._alert = alert
        self._seen = _Seen()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Look at training rows."""
        loss = context["logs"].get(KEY)
        if loss is None:
            return
        seen, each = self._seen, float(loss) / self.count
        seen.winning = seen.winning + 1 if each < WON else 0
        undecided = abs(each - 0.5) <= NEAR_UNDECIDED * 0.5 or each > 0.5
        late = state.global_step > GRACE_UPDATES
        seen.collapsed = seen.collapsed + 1 if late and undecided else 0
        for name, rows in (
            ("discriminator-wins", seen.winning),
            ("discriminator-collapsed", seen.collapsed),
        ):
            if rows >= ROWS and name not in seen.raised:
                seen.raised.append(name)
                values = {"loss": float(loss), "rows": rows, "step": state.global_step}
                text = ADVICE[name].format(undecided=0.5 * self.count, **values)
                (self._alert or context["trainer"].alert)(name, text)

    def state_dict(self) -> dict[str, Any]:
        """What was seen so far."""
        return asdict(self._seen)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` stood."""
        self._seen = _Seen(**state)
