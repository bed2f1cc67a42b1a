"""Averaged weights of a run: kept after every update, part of every checkpoint."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.checkpoints.reader import Checkpoint
from voicehub.errors import CheckpointMismatchError, ConfigurationError
from voicehub.optim.ema import ExponentialMovingAverage, WeightAverage
from voicehub.strategies.base import TrainingStrategy
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState

Weights = Literal["raw", "ema"]

#: Directory of a run that holds the averaged weights, beside ``final-model`` with the raw ones.
AVERAGED_MODEL = "final-model-ema"
#: Share of the first weights in an average from which on the user is told.
LARGE_START_SHARE = 0.03
#: How the names end under which the callbacks of averages are stored.
_OWNERS = (
    ":voicehub.trainer.averaging.EMACallback",
    ":voicehub.trainer.posthoc.PostHocEMACallback",
)


class AveragingCallback(TrainerCallback):
    """Keeps averages of everything that a route trains; one update of them a global step.

    Class attributes:
        kind: What manifests call the average.
    """

    kind: ClassVar[str]

    _strategy: TrainingStrategy
    _named: Mapping[str, nn.Parameter]

    def __init__(self) -> None:
        self.averages: dict[str, WeightAverage] = {}

    def bind(self, adapter: TrainingAdapter, strategy: TrainingStrategy) -> None:
        """Start from the weights of a set-up adapter: of what this process holds of them."""
        named = {name: p for route in adapter.routes.values() for name, p in route}
        self._strategy, self._named = strategy, named
        self.averages = self._build(adapter.module, strategy.local_tensors(named))

    @abstractmethod
    def _build(self, module: nn.Module, held: Mapping[str, Tensor]) -> dict[str, WeightAverage]:
        """The averages by name; the first is the one that evaluations and artifacts take."""

    @property
    def ema(self) -> WeightAverage:
        """The average that evaluations and artifacts take.

        Raises:
            ConfigurationError: it is asked for before the model is set up.
        """
        if not self.averages:
            raise ConfigurationError("The average exists once the Trainer's graph is built.")
        return next(iter(self.averages.values()))

    def reset(self) -> None:
        """Start over from the weights as they are now."""
        for average in self.averages.values():
            average.reset()

    def describe(self) -> dict[str, Any]:
        """What the average is and how far it has come, as JSON values."""
        ema = self.ema
        return {
            "kind": self.kind,
            **ema.describe(),
            "updates": ema.updates,
            "start_share": ema.start_share(),
        }

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """A new run averages from its first weights on, whatever was loaded since set-up."""
        if context.get("resumed_from") is None:
            self.reset()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Take in the new weights; an update that was skipped does not come here."""
        for average in self.averages.values():
            average.update()

    def finish(self) -> None:
        """Training has ended, and the weights are still the last ones."""

    def gathered(self, average: WeightAverage) -> dict[str, Tensor]:
        """An average as a whole, by name; all processes must call it where each holds a part."""
        found = {}
        for name, shadow in average.shadows().items():
            live = self._named.get(name)
            if average.offload and self._strategy.holds_parts and live is not None:
                # Collectives of an accelerator do not take what lies in main memory.
                found[name] = self._strategy.whole_tensor(shadow.to(live.device), live).cpu()
            else:
                found[name] = self._strategy.whole_tensor(shadow, live)
        return found

    def take(self, average: WeightAverage, state: Mapping[str, Any]) -> None:
        """Give an average back what ``gathered`` returned, and its count of updates."""
        part, live = self._strategy.part_like, self._named
        parts = {n: part(s, live[n]) if n in live else s for n, s in state["shadows"].items()}
        average.load_state_dict({**state, "shadows": self._strategy.local_tensors(parts)})


class EMACallback(AveragingCallback):
    """The exponential average of ``ema_decay``."""

    kind = "exponential"

    def __init__(self, args: TrainingArguments) -> None:
        super().__init__()
        assert args.ema_decay is not None
        self._settings: dict[str, Any] = {
            "decay": args.ema_decay,
            "warmup": args.ema_warmup,
            "buffer_policy": args.ema_buffers,
        }

    def _build(self, module: nn.Module, held: Mapping[str, Tensor]) -> dict[str, WeightAverage]:
        return {"ema": ExponentialMovingAverage(module, held, **self._settings)}

    def state_dict(self) -> dict[str, Any]:
        """Averages and their count, as live tensors: whoever keeps them copies them.

        All processes must call it where each holds a part of the weights.
        """
        return {"updates": self.ema.updates, "shadows": self.gathered(self.ema)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore ``state_dict``."""
        self.take(self.ema, state)

    def resume_fingerprint(self) -> dict[str, Any]:
        """The settings: another decay is another run."""
        return dict(self._settings)


def explain_start(averaging: AveragingCallback) -> str:
    """Advice for a run that has ended with much of its start in the average; empty where not."""
    ema = averaging.ema
    share = ema.start_share()
    if not ema.updates or share <= LARGE_START_SHARE:
        return ""
    return (
        f"after {ema.updates} updates {share:.0%} of the averaged weights are still those that "
        f"the run began with. The raw weights are what was trained; for a run of this length "
        "lower ema_decay, set ema_warmup, or take posthoc_ema, whose width is a share of the run"
    )


@contextmanager
def weights_in_use(averaging: AveragingCallback | None, weights: Weights) -> Iterator[None]:
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
            "This run keeps no averaged weights: set ema_decay or posthoc_ema in "
            "TrainingArguments, or use weights='raw'."
        )
    with averaging.ema.applied():
        yield


def describe_weights(averaging: AveragingCallback | None, weights: Weights) -> dict[str, Any]:
    """What an artifact says of its weights, as JSON values."""
    if averaging is None:
        return {"weights": weights}
    return {"weights": weights, "ema": averaging.describe()}


def averaged_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The model tensors of a checkpoint with the averages in their place.

    Raises:
        CheckpointMismatchError: the checkpoint holds no averages.
    """
    states: Mapping[str, Any] = checkpoint.runtime()["callbacks"]
    for name, state in states.items():
        if name.endswith(_OWNERS):
            shadows = _main_shadows(state)
            tensors = checkpoint.tensors()
            return {k: shadows[k].to(v.dtype) if k in shadows else v for k, v in tensors.items()}
    raise CheckpointMismatchError(
        f"'{checkpoint.path.name}' holds no averaged weights: its run had neither ema_decay nor "
        "posthoc_ema."
    )


def _main_shadows(state: Mapping[str, Any]) -> Mapping[str, Tensor]:
    """The average that evaluations and artifacts take, in what its callback has saved."""
    own = state if "shadows" in state else next(iter(state["averages"].values()))
    return dict(own["shadows"])
