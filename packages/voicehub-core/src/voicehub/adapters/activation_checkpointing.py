"""Turn on the recomputation of activations where modules offer it."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from voicehub.errors import UnsupportedTrainingError

# The newer name first: transformers warns about the older one.
METHODS = {
    "activation_checkpointing_enable": "activation_checkpointing_kwargs",
    "gradient_checkpointing_enable": "gradient_checkpointing_kwargs",
}


def enable_checkpointing(root: nn.Module, model_type: str) -> None:
    """Call ``gradient_checkpointing_enable`` (or its newer name) of the topmost modules with it.

    The non-reentrant form is asked for where there is a choice: the reentrant one loses the
    gradients of a block whose inputs need none, as after a frozen encoder.

    Raises:
        UnsupportedTrainingError: no module has it, or one that has it refuses.
    """
    offering = _topmost(root)
    if not offering:
        raise UnsupportedTrainingError(
            f"{model_type!r} does not offer gradient checkpointing; set "
            "gradient_checkpointing=False."
        )
    for module in offering:
        _enable(module, model_type)


def _topmost(root: nn.Module) -> list[nn.Module]:
    found: dict[nn.Module, None] = {}
    pending = [root]
    while pending:
        module = pending.pop()
        if any(hasattr(module, method) for method in METHODS):
            found[module] = None
        else:
            pending.extend(module.children())
    return list(found)


def _enable(module: nn.Module, model_type: str) -> None:
    method = next(method for method in METHODS if hasattr(module, method))
    enable: Any = getattr(module, method)
    options: dict[str, Any] = {}
    if METHODS[method] in inspect.signature(enable).parameters:
        options[METHODS[method]] = {"use_reentrant": False}
    try:
        enable(**options)
    except ValueError as error:
        raise UnsupportedTrainingError(
            f"{model_type!r}: {type(module).__name__} refuses gradient checkpointing ({error}); "
            "set gradient_checkpointing=False."
        ) from error
