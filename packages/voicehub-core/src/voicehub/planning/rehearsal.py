"""One training step of the real recipe, on shapes alone.

The Trainer's own graph and window run: phases, accumulation, clipping, optimizers, averages. What
they would allocate is counted, and how many multiplications they would do.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from voicehub.data.plan import BatchPlan, StreamPlan
from voicehub.optim.bundle import SchedulerBundle
from voicehub.planning.allocations import (
    AVERAGES,
    BUCKETS,
    GRADIENTS,
    INPUTS,
    OPTIMIZER,
    WEIGHTS,
    Allocations,
)
from voicehub.planning.shapes import ShapesOnly
from voicehub.planning.sharing import Blocks
from voicehub.planning.work import Work, WorkCounter
from voicehub.strategies.fsdp import sharded_blocks
from voicehub.strategies.single import SingleProcessStrategy
from voicehub.trainer.averaging import AveragingCallback
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.feed import DataFeed
from voicehub.trainer.freezing import FreezeCallback
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
class Parameters:
    """What a set-up recipe holds.

    Attributes:
        total, trainable: numbers, every parameter once.
        bytes_by_dtype: bytes by dtype name.
        blocks: sizes of what FSDP would gather at once.
        parts: bytes of those that train, by the path of the part of the model that holds them.
    """

    total: int
    trainable: int
    bytes_by_dtype: Mapping[str, int]
    blocks: Blocks
    parts: Mapping[str, int]


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
    _keep_what_counts(trainer)
    trainer.add_callback(_Marks(trainer, watch))
    if sends:
        trainer.add_callback(_Buckets(graph.adapter.module, watch))
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
        _parameters(graph.adapter.module, trainer.args.fsdp_min_block),
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


class _Marks(TrainerCallback):
    """Says what tensors are for, at the moments when it can be seen."""

    def __init__(self, trainer: Trainer, watch: Allocations) -> None:
        self._trainer = trainer
        self._watch = watch

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """All backward passes of a stage are done: gradients are where they belong."""
        parameters = self._trainer.graph.adapter.module.parameters()
        self._watch.name(GRADIENTS, [p.grad for p in parameters if p.grad is not None])
        self._watch.optimizers_begin()

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """The optimizers hold their state."""
        optimizers = self._trainer.graph.optimizers
        states = [optimizers[name].state for name in optimizers]
        held = [leaf for state in states for values in state.values() for leaf in values.values()]
        self._watch.name(OPTIMIZER, [leaf for leaf in held if isinstance(leaf, Tensor)])
        self._watch.optimizers_end()
        averaging = self._trainer.averaging
        for average in () if averaging is None else averaging.averages.values():
            self._watch.name(AVERAGES, average.shadows().values())


class _Buckets(TrainerCallback):
    """Copies gradients as the last backward of a phase brings them, as their messages do.

    The sums take the place of the gradients afterwards, so that the copies are gone by then.
    """

    def __init__(self, module: nn.Module, watch: Allocations) -> None:
        self._watch = watch
        self._messages: list[Tensor] = []
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._send)  # type: ignore[no-untyped-call]

    def _send(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        message = parameter.grad.clone()
        self._watch.name(BUCKETS, [message])
        self._messages.append(message)

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        """It was not the last micro-batch: nothing is sent yet."""
        self._messages.clear()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """All sums were taken."""
        self._messages.clear()


def _keep_what_counts(trainer: Trainer) -> None:
    """Without callbacks that only watch: what they write or send is for real runs."""
    for callback in list(trainer.callbacks.callbacks):
        if not isinstance(callback, (AveragingCallback, FreezeCallback)):
            trainer.remove_callback(callback)


def _tensors_of(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _tensors_in(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _parameters(module: nn.Module, smallest_block: int) -> Parameters:
    by_dtype: Counter[str] = Counter()
    total = trainable = 0
    for parameter in module.parameters():
        by_dtype[str(parameter.dtype).removeprefix("torch.")] += _bytes(parameter)
        total += parameter.numel()
        trainable += parameter.numel() if parameter.requires_grad else 0
    return Parameters(
        total, trainable, dict(by_dtype), _blocks(module, smallest_block), _parts(module)
    )


def _blocks(module: nn.Module, smallest: int) -> Blocks:
    everything = list(module.parameters())
    blocks = [list(block.parameters()) for block in sharded_blocks(module, smallest, set())]
    inside = {parameter for block in blocks for parameter in block}
    outside = [parameter for parameter in everything if parameter not in inside]
    return Blocks(
        root=sum(map(_bytes, outside)),
        largest=max((sum(map(_bytes, block)) for block in blocks), default=0),
        trainable=_trainable_bytes(everything),
        trainable_root=_trainable_bytes(outside),
        trainable_largest=max(map(_trainable_bytes, blocks), default=0),
    )


def _parts(module: nn.Module) -> dict[str, int]:
    """Bytes that train by part: children, or theirs where a model has only one."""
    path = ""
    children = list(module.named_children())
    while len(children) == 1 and not module._parameters:
        name, module = children[0]
        path = f"{path}{name}."
        children = list(module.named_children())
    sizes = {f"{path}{name}": _trainable_bytes(child.parameters()) for name, child in children}
    return {name: size for name, size in sizes.items() if size}


def _trainable_bytes(parameters: Iterable[nn.Parameter]) -> int:
    return sum(_bytes(parameter) for parameter in parameters if parameter.requires_grad)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
