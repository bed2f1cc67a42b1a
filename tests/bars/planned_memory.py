"""The memory of a training step: as planned from shapes, and as torch's profiler records it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from voicehub.cli import plan, smoke
from voicehub.cli.compose import Composition, compose_preset
from voicehub.cli.validate import validate_run
from voicehub.optim.bundle import SchedulerBundle
from voicehub.planning.rehearsal import (
    Rehearsal,
    TrainerFactory,
    rehearse,
    rehearsed_arguments,
    worst_batch,
)
from voicehub.strategies.single import SingleProcessStrategy
from voicehub.trainer.micro_batch import MicroBatch, Window
from voicehub.trainer.start import build_window
from voicehub.trainer.trainer import Trainer


class _WithoutSchedules(SingleProcessStrategy):
    def scheduler_step(self, scheduler: SchedulerBundle, names: Iterable[str]) -> None:
        """Learning rates are of no interest."""


def tiny_composition(preset: str, directory: Path, overrides: Sequence[str] = ()) -> Composition:
    """A preset over the family's own tiny data and shapes, its last stage."""
    composed = compose_preset(preset, overrides)
    made = smoke._tiny(smoke._spec_of(composed), composed, directory / "made")
    return composition(preset, directory, [*made, *overrides])


def composition(preset: str, directory: Path, overrides: Sequence[str] = ()) -> Composition:
    """A preset as the command line composes it, on one process and the CPU."""
    fixed = (*smoke._BOUNDS, *smoke._EVALUATING, f"training.output_dir={directory / 'r'}")
    composed = compose_preset(preset, [*fixed, *overrides])
    return composed.stages[-1] if composed.stages else composed


def trainers(composed: Composition) -> TrainerFactory:
    """Trainers of a composed run, on the device that it says."""
    spec, config = validate_run(composed)
    return plan._trainer_factory(composed, spec, config)


def planned(composed: Composition, *, on_card: bool = False) -> Rehearsal:
    """The estimate, with the settings under which every run is rehearsed."""
    spec, config = validate_run(composed)
    update = {"training": rehearsed_arguments(config.training)}
    make = plan._trainer_factory(composed, spec, config.model_copy(update=update))
    return rehearse(make, on_card=on_card)


def measured(make: TrainerFactory) -> int:
    """Bytes at the worst moment of a real step over the same batch.

    What is held when the step begins (weights, optimizer state, averages, the batch) is counted
    by storages; what the step allocates on top is what torch's allocation profiler records.
    """
    trainer, batch, step = _ready(make)
    step(0)
    gc.collect()
    module, graph = trainer.graph.adapter.module, trainer.graph
    states = [graph.optimizers[name].state for name in graph.optimizers]
    kept = [c.state_dict() for c in trainer.callbacks.callbacks if hasattr(c, "state_dict")]
    held = [*module.parameters(), *module.buffers(), *_tensors([list(s.values()) for s in states])]
    held += [*_tensors(kept), *_tensors(batch.inputs)]
    sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
    return sum(sizes.values()) + _allocated(lambda: step(1))


def measured_on_card(make: TrainerFactory) -> int:
    """Bytes that torch has allocated on a card at the worst moment of a real step, all told."""
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    _, _, step = _ready(make)
    step(0)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step(1)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _ready(make: TrainerFactory) -> tuple[Trainer, MicroBatch, Callable[[int], None]]:
    """A trainer, its worst batch, and what runs a step over that."""
    trainer = make(_WithoutSchedules)
    feed = trainer.train_feed()
    scaler = trainer.strategy.create_grad_scaler()
    window = build_window(trainer, feed, SchedulerBundle({}), scaler)
    batch = worst_batch(feed).batch
    batches = (batch,) * min(trainer.args.gradient_accumulation_steps, 2)

    def step(number: int) -> None:
        window.run(Window(batches=batches, step=number, epoch=0))
        trainer.fire("on_step_end")

    return trainer, batch, step


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _allocated(action: Callable[[], None]) -> int:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        action()
    assert profile.profiler is not None
    events = [e for e in _events(profile) if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def _events(profile: Any) -> Iterator[Any]:
    yield from profile.profiler.kineto_results.events()


__all__ = [
    "composition",
    "measured",
    "measured_on_card",
    "planned",
    "tiny_composition",
    "trainers",
]
