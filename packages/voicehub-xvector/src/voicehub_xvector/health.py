"""What goes wrong with speaker embeddings, seen before or while training."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState
from voicehub_xvector.config import EncoderRunConfig, XVectorRunConfig
from voicehub_xvector.data.speakers import SpeakerSplit

#: An EER at which scores say no more than chance.
CHANCE_EER = 0.45
#: Part of the run in which chance is no news, and evaluations in a row that make it one.
GRACE_FRACTION, GRACE_UPDATES, PATIENCE = 0.3, 100, 2
_HIGHEST_ENCODER_RATE = 1e-3
_FEW_RECORDINGS = 2


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that rarely goes well; ``text`` says what to do."""

    name: str
    text: str


def doubts(config: XVectorRunConfig, train: SpeakerSplit, classes: int) -> list[Doubt]:
    """Return what looks wrong before the first step."""
    found = []
    counts = Counter(train.speakers)
    few = sum(count < _FEW_RECORDINGS for count in counts.values())
    if few:
        found.append(
            Doubt(
                "single-recordings",
                f"{few} of {len(counts)} speakers have one recording alone, from which only the "
                "recording can be learnt; data.min_utterances=2 leaves them out",
            )
        )
    loss, mode = config.model.loss, config.model.train_mode
    if loss.inter_top_k >= classes:
        found.append(
            Doubt("inter-top-k", f"inter_top_k {loss.inter_top_k} covers all {classes} classes")
        )
    trains_encoder = isinstance(config, EncoderRunConfig) and mode in (
        "full", "hf-feat-extractor-frozen",
    )  # fmt: skip
    rates = {rule.pattern for rule in config.training.param_groups}
    rate = config.training.learning_rate
    if trains_encoder and rate > _HIGHEST_ENCODER_RATE and "encoder" not in rates:
        found.append(
            Doubt(
                "learning-rate",
                f"the encoder trains at {rate:g}, which few survive; give it a rate of its own: "
                "training.param_groups=[{pattern: encoder, learning_rate: 1e-5}]",
            )
        )
    return found


class EmbeddingMonitor(TrainerCallback):
    """Raises ``embeddings-at-chance`` once, when verification stays no better than a coin."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self.raised = False

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Look at the equal error rate."""
        rate = context["metrics"].get("eval_eer")
        grace = max(GRACE_UPDATES, GRACE_FRACTION * state.max_steps)
        if rate is None or state.global_step < grace:
            return
        self.in_a_row = self.in_a_row + 1 if rate > CHANCE_EER else 0
        if self.raised or self.in_a_row < PATIENCE:
            return
        self.raised = True
        context["trainer"].alert(
            "embeddings-at-chance",
            f"the equal error rate is {rate:.1%} at step {state.global_step} of {state.max_steps}: "
            "recordings of one speaker look no more alike than those of two. Check that "
            "'speaker' names voices and not files, lower training.learning_rate or "
            "model.loss.margin, or warm the margin up (model.loss.margin_warmup)",
        )

    def state_dict(self) -> dict[str, Any]:
        """What was seen so far."""
        return {"in_a_row": self.in_a_row, "raised": self.raised}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` stood."""
        self.in_a_row, self.raised = state["in_a_row"], state["raised"]
