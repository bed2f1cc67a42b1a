"""``compute_loss_func``: the user's loss over raw outputs, with the window's item count."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from voicehub.errors import ConfigurationError, RecipeError

if TYPE_CHECKING:
    from voicehub.adapters.base import TrainingAdapter
    from voicehub.adapters.context import TrainingContext
    from voicehub.trainer.arguments import TrainingArguments
    from voicehub.trainer.micro_batch import MicroBatch, Window

LossFunction = Callable[..., Tensor]


class CustomLoss:
    """Calls ``function(outputs, labels, num_items_in_batch=n)`` on one forward.

    ``n`` counts the items of the whole real accumulation window, over all processes: label entries
    that are not -100 for integer labels, otherwise samples. A function that takes
    ``num_items_in_batch`` divides by it itself, so the Trainer adds its losses up and normalises
    nothing; one that does not take it
    returns a mean, and the Trainer averages over the micro-batches.
    """

    def __init__(self, function: LossFunction, label_names: Sequence[str]) -> None:
        self.function = function
        self.label_names = tuple(label_names)
        parameters = inspect.signature(function).parameters
        self.is_normalised = "num_items_in_batch" in parameters or any(
            p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()
        )

    def __call__(
        self,
        adapter: TrainingAdapter,
        context: TrainingContext,
        window: Window,
    ) -> Tensor:
        """One forward and one loss of a micro-batch in a window."""
        inputs = context.inputs
        if not isinstance(inputs, Mapping):
            raise ConfigurationError("compute_loss_func needs batches that are mappings.")
        labels = self._labels(inputs)
        features = {k: v for k, v in inputs.items() if k not in self.label_names}
        outputs = adapter.forward(features, context.phase)
        if self.is_normalised:
            shared = window.shared
            items = self.count(window.batches) if shared is None else shared.found().labels
            loss = self.function(outputs, labels, num_items_in_batch=items)
        else:
            loss = self.function(outputs, labels)
        if not isinstance(loss, Tensor) or loss.ndim:
            raise RecipeError("compute_loss_func must return a scalar tensor.")
        return loss

    def _labels(self, inputs: Mapping[str, Any]) -> Any:
        found = {name: inputs[name] for name in self.label_names if name in inputs}
        if not found:
            raise ConfigurationError(
                f"compute_loss_func: the batch holds none of the labels {list(self.label_names)}; "
                f"it has {sorted(inputs)}. Set label_names."
            )
        return next(iter(found.values())) if len(found) == 1 else found

    def count(self, batches: Sequence[MicroBatch]) -> int:
        """Items of some micro-batches."""
        return sum(map(self._count, batches))

    def _count(self, batch: MicroBatch) -> int:
        labels = next((batch.inputs[n] for n in self.label_names if n in batch.inputs), None)
        if isinstance(labels, Tensor) and labels.ndim and not torch.is_floating_point(labels):
            return int((labels != -100).sum())
        return batch.size


def make_custom_loss(
    function: LossFunction | None, adapter: TrainingAdapter, args: TrainingArguments
) -> CustomLoss | None:
    """``compute_loss_func`` ready to be called; None without one.

    Raises:
        ConfigurationError: the recipe has several phases, whose losses are the adapter's.
    """
    if function is None:
        return None
    if len(adapter.phases) > 1:
        raise ConfigurationError(
            "compute_loss_func is one forward and one loss; this recipe has the phases "
            f"{', '.join(phase.name for phase in adapter.phases)}. Write the loss in the adapter."
        )
    return CustomLoss(function, args.label_names)
