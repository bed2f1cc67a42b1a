"""Norm, scaling and hand-over of gradients, with as few operator calls as possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


def gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """The gradients that exist."""
    return [p.grad for p in parameters if p.grad is not None]


def total_norm(grads: Sequence[Tensor]) -> Tensor:
    """Euclidean norm over all gradients, a scalar tensor; 0 for none. Sparse ones are coalesced."""
    if not grads:
        return torch.zeros(())
    first = grads[0]
    uniform = all(
        g.device == first.device and g.dtype == first.dtype and not g.is_sparse for g in grads
    )
    if uniform:
        norms = list(torch._foreach_norm(list(grads)))
    else:
        dense = [g.coalesce().values() if g.is_sparse else g for g in grads]
        norms = [torch.linalg.vector_norm(g).to(first.device, torch.float32) for g in dense]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def scale_(grads: Sequence[Tensor], factor: float) -> None:
    """Multiply all gradients in place."""
    if grads:
        torch._foreach_mul_(list(grads), factor)


class GradientStash:
    """Sets gradients aside while another phase accumulates its own, then adds them back.

    Two phases that share a route each average over their own number of items, so their sums must
    not be mixed before both averages are taken.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._held = [(p, p.grad) for p in parameters if p.grad is not None]
        for parameter, _ in self._held:
            parameter.grad = None

    def add_back(self) -> None:
        """Add what was set aside to what has accumulated since."""
        for parameter, grad in self._held:
            parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
        self._held = []
