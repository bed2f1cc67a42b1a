"""Averaged weights of a run: kept after every update, part of every checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub.checkpoints.reader import Checkpoint
from voicehub.errors import CheckpointMismatchError, ConfigurationError
from voicehub.optim.ema import ExponentialMovingAverage
from voicehub.strategies.base import TrainingStrategy
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState

Weights = Literal["raw", "ema"]

#: Directory of a run that holds the averaged weights, beside ``final-model`` with the raw ones.
AVERAGED_MODEL = "final-model-ema"


class EMACallback(TrainerCallback):
    """Keeps the average of everything that a route trains; one update of it a global step.

    Raises:
        ConfigurationError: it is asked for averages before the model is set up.
    """

    def __init__(self, args: TrainingArguments) -> None:
        assert args.ema_decay is not None
        self._settings: dict[str, Any] = {
            "decay": args.ema_decay,
            "warmup": args.ema_warmup,
            "buffer_policy": args.ema_buffers,
        }
        self._ema: ExponentialMovingAverage | None = None

    def bind(self, adapter: TrainingAdapter, strategy: TrainingStrategy) -> None:
        """Start from the weights of a set-up adapter: of what this process holds of them."""
        named = {name: p for route in adapter.routes.values() for name, p in route}
        self._strategy, self._named = strategy, named
        held = strategy.local_tensors(named)
        self._ema = ExponentialMovingAverage(adapter.module, held, **self._settings)

    @property
    def ema(self) -> ExponentialMovingAverage:
        """The average."""
        if self._ema is None:
            raise ConfigurationError("The average exists once the Trainer's graph is built.")
        return self._ema

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """A new run averages from its first weights on, whatever was loaded since set-up."""
        if context.get("resumed_from") is None:
            self.ema.reset()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Take in the new weights; an update that was skipped does not come here."""
        self.ema.update()

    def state_dict(self) -> dict[str, Any]:
        """Averages and their count, as live tensors: whoever keeps them copies them.

        All processes must call it where each holds a part of the weights.
        """
        state = self.ema.state_dict()
        gather = self._strategy.whole_tensor
        shadows = {n: gather(s, self._named.get(n)) for n, s in state["shadows"].items()}
        return {**state, "shadows": shadows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore ``state_dict``."""
        part, live = self._strategy.part_like, self._named
        parts = {n: part(s, live[n]) if n in live else s for n, s in state["shadows"].items()}
        self.ema.load_state_dict({**state, "shadows": self._strategy.local_tensors(parts)})

    def resume_fingerprint(self) -> dict[str, Any]:
        """The settings: another decay is another run."""
        return dict(self._settings)


@contextmanager
def weights_in_use(averaging: EMACallback | None, weights: Weights) -> Iterator[None]:
    """Hold the raw or the averaged weights in the model.

    Raises:
        ConfigurationError: averages are asked for in a run that keeps none.
    """
    if weights not in ("raw", "ema"):
        raise ConfigurationError(f"weights must be 'raw' or 'ema', got {weights!r}.")
    if weights == "raw":
        yield
        return
    if averaging is None:
        raise ConfigurationError(
            "This run keeps no averaged weights: set ema_decay in TrainingArguments, or use "
            "weights='raw'."
        )
    with averaging.ema.applied():
        yield


def describe_weights(averaging: EMACallback | None, weights: Weights) -> dict[str, Any]:
    """What an artifact says of its weights, as JSON values."""
    if averaging is None:
        return {"weights": weights}
    ema = averaging.ema
    return {"weights": weights, "ema": {**ema.describe(), "updates": ema.updates}}


def averaged_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The model tensors of a checkpoint with the averages in their place.

    Raises:
        CheckpointMismatchError: the checkpoint holds no averages.
    """
    own = f"{EMACallback.__module__}.{EMACallback.__qualname__}"
    states: Mapping[str, Any] = checkpoint.runtime()["callbacks"]
    for name, state in states.items():
        if name.endswith(f":{own}"):
            tensors = checkpoint.tensors()
            shadows = state["shadows"]
            return {k: shadows[k].to(v.dtype) if k in shadows else v for k, v in tensors.items()}
    raise CheckpointMismatchError(
        f"'{checkpoint.path.name}' holds no averaged weights: its run had no ema_decay."
    )
