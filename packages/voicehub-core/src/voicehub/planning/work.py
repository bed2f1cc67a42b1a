"""Multiplications and bytes of a step, by which a device's time can be bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


@dataclass(frozen=True)
class Work:
    """What a step does.

    Attributes:
        flops: floating-point operations of matrix products, convolutions and attention; a
            multiplication and an addition are two.
        needed_bytes: read and written by those alone: what remains where all else is fused.
        moved_bytes: read and written by all ops: what eager execution moves at most.
        ops: kernels that are started.
    """

    flops: float
    needed_bytes: float
    moved_bytes: float
    ops: float

    def scaled(self, factor: float) -> Work:
        """Return the work of ``factor`` such steps."""
        return replace(self, **{name: value * factor for name, value in vars(self).items()})


class WorkCounter:
    """Watches ops."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Count from zero."""
        self._flops = self._needed = self._moved = self._ops = 0.0

    def __call__(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Take one op."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        if not tensors or func.is_view:
            return
        moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        self._moved += moved
        self._ops += 1
        count = flop_registry.get(func.overloadpacket)
        if count is not None:
            self._flops += float(count(*args, **kwargs, out_val=result))
            self._needed += moved

    def total(self) -> Work:
        """Return what was counted since :meth:`start`."""
        return Work(self._flops, self._needed, self._moved, self._ops)
