"""``TrainingStrategy``: how a step is executed, apart from what is optimised.

The Trainer calls nothing else for devices, precision, backward, clipping, stepping and talking to
other processes. A strategy for one process is a few lines a method; one for many overrides the
same methods.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor, nn

from voicehub.optim.gradients import scale_

if TYPE_CHECKING:
    from voicehub.adapters.base import TrainingAdapter
    from voicehub.adapters.context import TrainingContext
    from voicehub.adapters.outputs import SpeechTrainingOutput
    from voicehub.optim.bundle import OptimizerBundle, SchedulerBundle


ResultT = TypeVar("ResultT")


class TrainingStrategy(ABC):
    """Every method that the Trainer calls, in the order of a run."""

    name: str = ""
    rank: int = 0
    world_size: int = 1
    #: Whether forwards are joint acts: a process without a batch then runs one that counts nothing.
    needs_equal_work: bool = False
    #: Whether each process holds a part of the weights alone.
    holds_parts: bool = False

    @property
    def is_local_primary(self) -> bool:
        """Whether this is the first process of its machine."""
        return int(getattr(self, "local_rank", self.rank)) == 0

    @property
    def is_primary(self) -> bool:
        """Whether this process writes files and talks to people."""
        return self.rank == 0

    # Set-up, in this order: device, model/adapter, optimisation, data.

    @abstractmethod
    def prepare_device(self, model: nn.Module, *, device: str) -> nn.Module:
        """Move the freshly built graph to where it trains."""

    def prepare_model(self, model: nn.Module, *, device: str) -> nn.Module:
        """Wrap the graph after passes were applied (DDP, FSDP); parameters keep their identity."""
        return model

    def prepare_training_adapter(self, adapter: TrainingAdapter, *, device: str) -> TrainingAdapter:
        """Wrap what an adapter executes; the default leaves it alone."""
        return adapter

    def prepare_optimization(
        self, model: nn.Module, optimizer: OptimizerBundle, scheduler: SchedulerBundle | None
    ) -> tuple[OptimizerBundle, SchedulerBundle | None]:
        """Wrap optimizers and schedulers; the default leaves them alone."""
        return optimizer, scheduler

    def prepare_dataloader(self, dataloader: Any, *, training: bool) -> Any:
        """Wrap a loader; ours is dealt to ranks already."""
        return dataloader

    # One phase of one window: begin_phase, its micro-batches, end_phase.

    def begin_phase(self, parameters: Sequence[nn.Parameter]) -> None:
        """The micro-batches that follow are of a phase that trains these parameters."""

    def end_phase(self) -> None:
        """Sum the phase's gradients over processes; also called where a micro-batch has failed."""

    @abstractmethod
    def prepare_input(self, value: Any, *, device: str) -> Any:
        """Move tensors in nested containers to the device; other values pass through."""

    @abstractmethod
    def autocast_context(self) -> AbstractContextManager[Any]:
        """Mixed precision of forward passes."""

    @abstractmethod
    def create_grad_scaler(self) -> Any:
        """A gradient scaler for fp16, otherwise None."""

    @contextlib.contextmanager
    def no_sync(self, model: nn.Module, *, enabled: bool) -> Iterator[None]:
        """Hold back gradient reduction on all but the last micro-batch of a window.

        A process without a micro-batch in a window does not come here, but to ``end_phase``.
        """
        yield

    def execute_training_phase(
        self, model: nn.Module, adapter: TrainingAdapter, context: TrainingContext
    ) -> SpeechTrainingOutput:
        """Run one phase on one micro-batch under autocast."""
        with self.autocast_context():
            return adapter.execute_training_phase(context)

    def execute_prediction_phase(
        self, model: nn.Module, adapter: TrainingAdapter, context: TrainingContext
    ) -> SpeechTrainingOutput:
        """Run the evaluation phase on one batch under autocast, without gradients."""
        with self.autocast_context():
            return adapter.execute_prediction_phase(context)

    @abstractmethod
    def backward(self, loss: Tensor, *, scaler: Any) -> None:
        """Accumulate gradients of ``loss``."""

    # The end of a window.

    def exchange(self, value: Any, *, what: str = "a decision") -> list[Any]:
        """JSON values of all processes in the order of ranks; all of them must call it.

        Args:
            value: that of this process.
            what: names the occasion in the message when a process does not come.
        """
        return [value]

    def exchange_later(self, value: Any, *, what: str = "a decision") -> Callable[[], list[Any]]:
        """``exchange`` in two parts, with work of this process between them.

        All processes must begin, and end, their exchanges in the same order.
        """
        rows = self.exchange(value, what=what)
        return lambda: rows

    def reduce_sum(self, value: Tensor | float) -> Tensor | float:
        """Sum over processes; all of them must call it."""
        return value

    def any_rank(self, flag: bool) -> bool:
        """Whether ``flag`` holds on any process: every decision that changes what a rank does."""
        return flag

    def changed_state(self) -> Any:
        """JSON that says what forward passes have changed in the model beside its weights."""
        return None

    def share_state(self, changed: Sequence[Any]) -> None:
        """Make equal on all processes what ``changed_state`` said on each of them."""

    def normalize_gradients(self, grads: Sequence[Tensor], divisor: float) -> None:
        """Divide gradients in place."""
        scale_(grads, 1.0 / divisor)

    @abstractmethod
    def gradient_norm(self, grads: Sequence[Tensor]) -> Tensor:
        """Euclidean norm of all gradients, over all processes."""

    @abstractmethod
    def clip_grad_norm(self, grads: Sequence[Tensor], norm: float, max_norm: float) -> None:
        """Scale gradients in place so that their norm is at most ``max_norm``."""

    @abstractmethod
    def unscale(self, optimizer: OptimizerBundle, names: Iterable[str], *, scaler: Any) -> None:
        """Take the fp16 loss scale out of the gradients of the named routes."""

    @abstractmethod
    def optimizer_step(
        self, optimizer: OptimizerBundle, names: Iterable[str], *, scaler: Any
    ) -> None:
        """Step the named routes."""

    @abstractmethod
    def update_scaler(self, scaler: Any, *, skipped: bool) -> None:
        """Let the fp16 scaler follow what happened to the update."""

    def scheduler_step(self, scheduler: SchedulerBundle, names: Iterable[str]) -> None:
        """Advance the schedules of the named routes."""
        scheduler.step(names)

    def zero_grad(self, optimizer: OptimizerBundle, names: Iterable[str]) -> None:
        """Drop the gradients of the named routes."""
        optimizer.zero_grad(names)

    # Evaluation, checkpoints, other processes.

    def gather_for_metrics(self, value: list[Any]) -> list[Any]:
        """Rows of one evaluation batch of each process, in the order of the data."""
        return [row for rows in self.gather_objects(value) for row in rows]

    def gather_objects(self, value: Any, *, what: str = "the results") -> list[Any]:
        """Python objects of all processes in the order of ranks; all of them must call it."""
        return [value]

    def barrier(self) -> None:
        """Wait for all processes."""

    def on_primary(self, work: Callable[[], ResultT], *, what: str = "work of rank 0") -> ResultT:
        """Run ``work`` on the primary process alone; its JSON result is returned on all."""
        return work()

    @contextlib.contextmanager
    def primary_first(self, what: str = "work of rank 0") -> Iterator[None]:
        """The block runs on the primary process first, then on the others."""
        yield

    def at_work(self, what: str) -> contextlib.AbstractContextManager[None]:
        """For a block that may take long on this process alone: the others wait as long."""
        return contextlib.nullcontext()

    def report_failure(self, error: BaseException) -> None:
        """Let other processes know why this one ends."""

    def close(self) -> None:
        """Leave the other processes; nothing of the strategy is used afterwards."""

    # Weights as a whole, where processes hold parts of them.

    def local_tensors(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What this process holds of named parameters, sharing memory with them."""
        return dict(named)

    def whole_tensor(self, tensor: Tensor, like: Tensor | None = None) -> Tensor:
        """A parameter as a whole; all processes must call it.

        Args:
            tensor: a parameter, or what this process holds of a state of its shape.
            like: the parameter, where ``tensor`` is such a state.
        """
        return tensor.detach()

    def part_like(self, whole: Tensor, like: Tensor) -> Tensor:
        """What this process holds of a whole tensor, laid out as ``like`` is."""
        return whole

    @contextlib.contextmanager
    def whole_model(self, model: nn.Module, *, write_back: bool = False) -> Iterator[None]:
        """Whole weights in the modules for the time of the block: to be read, not to be run.

        Args:
            model: the modules.
            write_back: take over what the block has made of them.
        """
        yield

    @contextlib.contextmanager
    def open_model(self, model: nn.Module) -> Iterator[None]:
        """Parts of the model can be called outside of a phase, by all processes alike."""
        yield

    def unwrap_model(self, model: nn.Module) -> nn.Module:
        """Undo ``prepare_model``."""
        return model

    def state_dict(self) -> dict[str, Any]:
        """State of the strategy itself, as JSON values and tensors."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore ``state_dict``."""

    def resume_signature(self) -> dict[str, Any]:
        """What must be equal for a bit-exact resume."""
        return {"name": self.name, "world_size": self.world_size}
