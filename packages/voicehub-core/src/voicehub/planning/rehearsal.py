"""One training step of the real recipe, on shapes alone.

The Trainer's own graph and window run: phases, accumulation, clipping, optimizers, averages. What
they would allocate is counted, and how many multiplications they would do.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from voicehub.data.plan import BatchPlan, StreamPlan
from voicehub.optim.bundle import SchedulerBundle
from voicehub.planning.allocations import INPUTS, WEIGHTS, Allocations
from voicehub.planning.marks import Marks, MessagesOfGradients, keep_what_counts
from voicehub.planning.parameters import Parameters, parameters_of
from voicehub.planning.shapes import ShapesOnly
from voicehub.planning.work import Work, WorkCounter
from voicehub.strategies.single import SingleProcessStrategy
from voicehub.trainer.feed import DataFeed
from voicehub.trainer.micro_batch import MicroBatch, Window
from voicehub.trainer.start import build_window

if TYPE_CHECKING:
    from voicehub.adapters.base import TrainingAdapter
    from voicehub.strategies.base import TrainingStrategy
    from voicehub.trainer.arguments import TrainingArguments
    from voicehub.trainer.trainer import Trainer

#: Builds a Trainer with the strategy that it gets from what it is called with.
TrainerFactory: TypeAlias = "Callable[[Callable[[TrainingArguments], TrainingStrategy]], Trainer]"
#: Batches that are looked at where a plan does not say what one costs.
CANDIDATES = 16
#: Where a rehearsal differs from its run: one process, on the CPU, and nobody is told.
REHEARSED: Mapping[str, Any] = {
    "use_cpu": True,
    "strategy": "torch",
    "dataloader_num_workers": 0,
    "report_to": [],
    "push_to_hub": False,
    "hub_model_id": None,
    "torch_compile": False,
}
#: The first step makes the optimizers' state; the second is like all others.
_STEPS = 2


@dataclass(frozen=True)
class Rehearsal:
    """What one step needs.

    Attributes:
        parameters: of everything that the adapter holds.
        memory: bytes by kind at the worst moment, on one process.
        batch_work: of one micro-batch, the worst, and its share of the update that follows.
        batch: ids of that batch, as far as it has some.
        batch_share: its share of an epoch, in what the plan counts (padded seconds or samples).
        updates_per_epoch: in the first epoch, of one process; None for a stream.
    """

    parameters: Parameters
    memory: Mapping[str, int]
    batch_work: Work
    batch: tuple[str, ...]
    batch_share: float
    updates_per_epoch: int | None

    @property
    def peak(self) -> int:
        """Bytes at the worst moment."""
        return sum(self.memory.values())


class RehearsalStrategy(SingleProcessStrategy):
    """One process on the CPU; what was loaded with numbers loses them before anyone holds it."""

    name = "rehearsal"

    def __init__(self, args: TrainingArguments, mode: ShapesOnly) -> None:
        super().__init__(args)
        self._mode = mode

    def prepare_device(self, model: nn.Module, *, device: str) -> nn.Module:
        """Leave it: shapes have no place."""
        return model

    def prepare_training_adapter(self, adapter: TrainingAdapter, *, device: str) -> TrainingAdapter:
        """Take the numbers away; routes hold the new parameters afterwards."""
        module = adapter.module
        names = {parameter: name for name, parameter in module.named_parameters()}
        self._mode.hollow_module(module)
        now = dict(module.named_parameters())
        adapter.replace_routes(
            {
                route: [(name, now[names[parameter]]) for name, parameter in named]
                for route, named in adapter.routes.items()
            }
        )
        return adapter

    def scheduler_step(self, scheduler: SchedulerBundle, names: Iterable[str]) -> None:
        """Learning rates are of no interest."""


def rehearsed_arguments(args: TrainingArguments) -> TrainingArguments:
    """Return the settings under which a step of a run is rehearsed."""
    values = {**args.to_dict(), **REHEARSED}
    if args.fp16:
        # As many bytes, and the CPU computes in it; the scaler holds one number.
        values |= {"fp16": False, "bf16": True}
    return type(args).from_dict(values)


def rehearse(
    make_trainer: TrainerFactory, *, sends: bool = False, on_card: bool = True
) -> Rehearsal:
    """Run two steps of a recipe over its worst batch.

    Args:
        make_trainer: builds the Trainer of the run, on the CPU and without loading anything.
        sends: whether gradients travel to other processes in buckets, as under ``ddp``.
        on_card: whether it is for a card, whose kernels need other room than those of a CPU.

    Raises:
        ShapesOnlyError: the recipe makes shapes from numbers of floating tensors.
    """
    watch, work = Allocations(on_card=on_card), WorkCounter()

    def tell(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        watch(func, args, kwargs, result)
        work(func, args, kwargs, result)

    mode = ShapesOnly(tell)
    trainer = make_trainer(lambda args: RehearsalStrategy(args, mode))
    with mode.entered():
        graph = trainer.graph
    feed = trainer.train_feed()
    worst = worst_batch(feed)
    batches = _as_window(mode, worst.batch, trainer.args.gradient_accumulation_steps)
    keep_what_counts(trainer)
    trainer.add_callback(Marks(trainer, watch))
    if sends:
        trainer.add_callback(MessagesOfGradients(graph.adapter.module, watch))
    with mode.entered(), watch.inside_modules(), _older_objects_left_alone():
        window = build_window(
            trainer, feed, SchedulerBundle({}), trainer.strategy.create_grad_scaler()
        )
        watch.name(WEIGHTS, _tensors_of(graph.adapter.module))
        watch.name(INPUTS, [leaf for batch in batches for leaf in _tensors_in(batch.inputs)])
        for step in range(_STEPS):
            gc.collect()  # cycles of the step before
            watch.start_step()
            work.start()
            window.run(Window(batches=batches, step=step, epoch=0))
            trainer.fire("on_step_end")
    return Rehearsal(
        parameters_of(graph.adapter.module, trainer.args.fsdp_min_block),
        watch.at_peak(),
        work.total().scaled(1 / len(batches)),
        tuple(str(name) for name in worst.batch.info.get("ids", ())),
        worst.share,
        feed.num_updates(0),
    )


@contextmanager
def _older_objects_left_alone() -> Iterator[None]:
    """Collections look at new objects: of what was there before, a step makes no garbage."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@dataclass(frozen=True)
class WorstBatch:
    """The micro-batch that needs most, and its share of the epoch's cost."""

    batch: MicroBatch
    share: float


def worst_batch(feed: DataFeed) -> WorstBatch:
    """Find the micro-batch of the first epoch that needs most memory.

    A plan that knows the padded cost of a batch is asked; of another one, a few batches spread
    over the epoch are made, and the one with the most elements is taken.
    """
    plan = feed.plan
    if isinstance(plan, StreamPlan):
        first = next(iter(feed.batches(0)))
        return WorstBatch(first, 0.0)
    batches = plan.batches(0)
    cost = getattr(plan, "padded_seconds", None)
    if callable(cost):
        costs = [float(cost(batch)) for batch in batches]
        number = max(range(len(costs)), key=lambda n: (costs[n], len(batches[n])))
        return WorstBatch(_made(feed, plan, number), costs[number] / sum(costs))
    step = max(1, len(batches) // CANDIDATES)
    made = [_made(feed, plan, number) for number in range(0, len(batches), step)]
    sizes = [_elements(batch) for batch in made]
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    return WorstBatch(made[largest], sizes[largest] / (sum(sizes) * len(batches) / len(made)))


def _made(feed: DataFeed, plan: BatchPlan, number: int) -> MicroBatch:
    from voicehub.data.keyed_random import SampleKey

    indices = plan.batches(0)[number]
    return feed.batch_of([SampleKey(plan.seed, 0, n, i) for n, i in enumerate(indices)])


def _elements(batch: MicroBatch) -> int:
    return sum(tensor.numel() for tensor in _tensors_in(batch.inputs))


def _as_window(mode: ShapesOnly, batch: MicroBatch, accumulation: int) -> tuple[MicroBatch, ...]:
    """Two micro-batches stand for any larger number: gradients are there from the second on."""
    count = min(accumulation, 2)
    return tuple(replace(batch, inputs=mode.hollow(batch.inputs)) for _ in range(count))


def _tensors_of(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _tensors_in(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
