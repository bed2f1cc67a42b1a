"""Eval mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Put a module into eval mode; afterwards each of its parts is in the mode it was in.

    Parts that were kept in eval mode while the rest trained, such as frozen batch normalisation,
    stay so. Gradients are the caller's: add ``torch.no_grad()`` or ``torch.inference_mode()``.

    Args:
        module: The root; its parts are those it has on entry.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
