"""Callbacks of a rehearsal: they say what tensors are for when that can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from voicehub.planning.allocations import AVERAGES, BUCKETS, GRADIENTS, OPTIMIZER, Allocations
from voicehub.trainer.averaging import AveragingCallback
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.freezing import FreezeCallback

if TYPE_CHECKING:
    from voicehub.trainer.trainer import Trainer


class Marks(TrainerCallback):
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


class MessagesOfGradients(TrainerCallback):
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


def keep_what_counts(trainer: Trainer) -> None:
    """Without callbacks that only watch: what they write or send is for real runs."""
    for callback in list(trainer.callbacks.callbacks):
        if not isinstance(callback, (AveragingCallback, FreezeCallback)):
            trainer.remove_callback(callback)
