"""What all ranks must know of each other within a window, so that they do the same.

With one process nothing here is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from voicehub.errors import RecipeError
from voicehub.strategies.base import TrainingStrategy
from voicehub.strategies.failure_watch import RankFailedError, RankFailure
from voicehub.trainer.memory import IndivisibleBatchError, StepOutOfMemoryError, halved
from voicehub.trainer.micro_batch import MicroBatch, Window
from voicehub.trainer.state import TrainerControl

_MEMORY, _OTHER = "memory", "error"
_FLAGS = (
    "should_training_stop",
    "should_epoch_stop",
    "should_save",
    "should_evaluate",
    "should_log",
)


@dataclass(frozen=True)
class GlobalWindow:
    """What the ranks hold of one window together.

    Attributes:
        counts: micro-batches of each rank; the last window of an epoch may leave a rank none.
        phase: the phase that the batches name, None where they name none.
        samples: samples of all ranks.
        labels: entries that a custom loss counts, of all ranks.
        info: ``audio_seconds`` and ``padded_seconds`` of all ranks.
    """

    counts: tuple[int, ...]
    phase: str | None = None
    samples: int = 0
    labels: int = 0
    info: Mapping[str, float] = field(default_factory=dict)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of all ranks."""
        return sum(self.counts)


class SharedWindow:
    """What the ranks hold of one window, told to the others; a rank goes on until it must know.

    Args:
        take: waits for the others.
    """

    def __init__(self, take: Callable[[], GlobalWindow]) -> None:
        self._take = take
        self._found: GlobalWindow | Exception | None = None

    def found(self) -> GlobalWindow:
        """Return what all ranks hold, once they have told it.

        Raises:
            the problem of this rank's reading; RankFailedError where it was another's.
            RecipeError: batches of different ranks name different phases.
        """
        if self._found is None:
            try:
                self._found = self._take()
            except Exception as error:
                # A loss may ask before the phase's end does, and the others tell nothing twice.
                self._found = error
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def share_window(
    strategy: TrainingStrategy,
    batches: Sequence[MicroBatch],
    *,
    step: int,
    labels: int,
    problem: Exception | None,
) -> SharedWindow:
    """Tell the others what this rank has read for the next update.

    Args:
        strategy: connects the ranks.
        batches: micro-batches of this rank, perhaps none.
        step: the update they are for.
        labels: entries that a custom loss counts, of this rank.
        problem: what reading them raised.
    """
    own = {
        "step": step,
        "count": len(batches),
        "phases": sorted({batch.phase or "" for batch in batches}),
        "samples": sum(batch.size for batch in batches),
        "labels": labels,
        "problem": told(problem),
    }
    for name in ("audio_seconds", "padded_seconds"):
        own[name] = sum(float(batch.info.get(name, 0.0)) for batch in batches)
    others = strategy.exchange_later(own, what="the batches of the next update")

    def take() -> GlobalWindow:
        rows = others()
        raise_first(problem, rows)
        return _whole_window(rows)

    return SharedWindow(take)


def _whole_window(rows: Sequence[Mapping[str, Any]]) -> GlobalWindow:
    if len({row["step"] for row in rows}) > 1:
        steps = ", ".join(f"rank {rank}: {row['step']}" for rank, row in enumerate(rows))
        raise RecipeError(f"The ranks stand at different steps ({steps}): they have diverged.")
    phases = sorted({name for row in rows for name in row["phases"]})
    if len(phases) > 1:
        named = ", ".join(name or "none" for name in phases)
        raise RecipeError(
            f"One accumulation window mixes the training phases {named}; every batch of a window "
            "must name the same one, on all ranks."
        )
    return GlobalWindow(
        counts=tuple(row["count"] for row in rows),
        phase=(phases[0] or None) if phases else None,
        samples=sum(row["samples"] for row in rows),
        labels=sum(row["labels"] for row in rows),
        info={name: sum(r[name] for r in rows) for name in ("audio_seconds", "padded_seconds")},
    )


@dataclass(frozen=True)
class PhaseSums:
    """Weighted sums over the micro-batches of one phase, of one rank or of all."""

    loss: float = 0.0
    weight: float = 0.0
    items: float | None = None
    components: Mapping[str, float] = field(default_factory=dict)


def share_phase(
    strategy: TrainingStrategy,
    window: SharedWindow,
    phase: str,
    own: PhaseSums,
    problem: Exception | None,
) -> PhaseSums:
    """End the phase, and add up what the ranks have summed in it, in the order of ranks.

    The sums travel beside the last gradients, so that ranks wait for each other once. Before that
    it is known of all ranks that they have come to this window.

    Raises:
        the problem, where it is this rank's; on the others StepOutOfMemoryError where it was
        memory, RankFailedError otherwise.
        RecipeError: some ranks counted items and others did not.
    """
    window.found()
    row = {
        "loss": own.loss,
        "weight": own.weight,
        "items": own.items,
        "components": dict(own.components),
        "changed": strategy.changed_state(),
        "problem": told(problem),
    }
    others = strategy.exchange_later(row, what=f"the sums of phase '{phase}'")
    strategy.end_phase()
    rows = others()
    raise_first(problem, rows)
    strategy.share_state([found["changed"] for found in rows])
    counted = [found for found in rows if found["weight"] or found["items"] is not None]
    with_items = [found for found in counted if found["items"] is not None]
    if with_items and len(with_items) < len(counted):
        raise RecipeError(
            f"Phase '{phase}' gave num_items on some ranks and not on others; it must do so for "
            "every micro-batch."
        )
    components: dict[str, float] = {}
    for found in rows:
        for name, value in found["components"].items():
            components[name] = components.get(name, 0.0) + value
    return PhaseSums(
        loss=sum(found["loss"] for found in rows),
        weight=sum(found["weight"] for found in rows),
        items=sum(found["items"] for found in with_items) if with_items else None,
        components=components,
    )


def share_halves(strategy: TrainingStrategy, window: Window, error: StepOutOfMemoryError) -> Window:
    """Return the window in micro-batches of half size, on every rank where they can be halved.

    Raises:
        StepOutOfMemoryError: a rank that ran out of memory cannot halve its micro-batches.
    """
    reason = None
    try:
        batches: Sequence[MicroBatch] = halved(window.batches)
    except IndivisibleBatchError as problem:
        batches, reason = window.batches, str(problem)
    stuck = reason if not isinstance(error, ElsewhereOutOfMemoryError) else None
    found = next(filter(None, strategy.exchange(stuck, what="halves of the micro-batches")), None)
    if found is not None:
        raise StepOutOfMemoryError(f"{error} (Not retried: {found}.)") from error
    return replace(window, batches=batches)


class ElsewhereOutOfMemoryError(StepOutOfMemoryError):
    """Another rank ran out of memory in this step."""

    is_of_another_rank = True


def share_control(strategy: TrainingStrategy, control: TrainerControl) -> None:
    """Let what any rank asks for be asked on all: a signal or a time limit may reach one alone."""
    share_control_later(strategy, control)()


def share_control_later(strategy: TrainingStrategy, control: TrainerControl) -> Callable[[], None]:
    """``share_control`` in two parts: the call returned waits for the others."""
    own = [getattr(control, name) for name in _FLAGS]
    others = strategy.exchange_later(own, what="what is due after an update")

    def take() -> None:
        rows = others()
        for number, name in enumerate(_FLAGS):
            setattr(control, name, any(row[number] for row in rows))

    return take


def raise_first(problem: Exception | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise this rank's problem, or one that tells of the first other rank's; none passes.

    Where ranks ran out of memory and others failed otherwise, all fail.
    """
    failed = [(rank, row["problem"]) for rank, row in enumerate(rows) if row["problem"]]
    if not failed:
        return
    others = [(rank, found) for rank, found in failed if found[0] == _OTHER]
    if problem is not None and (not others or not isinstance(problem, StepOutOfMemoryError)):
        raise problem
    rank, (kind, name, text) = others[0] if others else failed[0]
    if kind == _MEMORY:
        raise ElsewhereOutOfMemoryError(f"Rank {rank}: {text}")
    raise RankFailedError(RankFailure(rank, name, text))


def told(problem: Exception | None) -> list[str] | None:
    """Return a problem as JSON, for the field ``problem`` of what ranks exchange."""
    if problem is None:
        return None
    kind = _MEMORY if isinstance(problem, StepOutOfMemoryError) else _OTHER
    return [kind, type(problem).__name__, str(problem)]
