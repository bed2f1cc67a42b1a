"""Train a plain ``torch.nn.Module``: one phase, one route, its own forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask


class ModuleAdapter(TrainingAdapter):
    """Wraps a module whose forward returns a loss.

    The batch decides the call: a mapping gives ``module(**batch)``, a tuple or list of a plain
    data loader ``module(*batch)``. The forward may return a scalar loss, a mapping or object
    with ``loss`` (transformers models do), or a tuple whose first item is the loss.
    """

    native_export_semantics = "inference-export"

    def __init__(self, model: nn.Module, spec: ModelTrainingSpec | None = None) -> None:
        """Keep the module.

        Args:
            model: The module.
            spec: Its spec; by default one made from its class name.
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"Expected a torch.nn.Module, got {type(model).__name__}.")
        super().__init__(model, spec or plain_spec(model))

    def data_collator(self) -> Callable[[Sequence[Any]], Any] | None:
        """Return None: the Trainer's default collator stacks what the data set yields."""
        return None


def plain_spec(model: nn.Module) -> ModelTrainingSpec:
    """Return the spec of a plain module; its type is the class name."""
    return ModelTrainingSpec(
        model_type=type(model).__name__,
        family="module",
        task=SpeechTask.GENERIC,
        support=TrainingSupport.NATIVE,
        summary="A plain torch.nn.Module with its own loss.",
        module_paths=("",),
    )
