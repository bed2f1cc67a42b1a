"""Run Triton kernels on the CPU and refuse what Triton's own interpreter lets pass.

Refused: a load or store outside the tensors of the launch; a load of what the same program stored
earlier with no barrier between, which other threads of a GPU need not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class OutOfBounds(AssertionError):
    """An access outside every tensor of the launch."""


class MissingBarrier(AssertionError):
    """A load of what this program wrote since its last barrier."""


class StrictKernel:
    """A ``@triton.jit`` kernel that is launched as usual, ``kernel[grid](...)``, but checked."""

    def __init__(self, kernel: Any) -> None:
        from triton.runtime.interpreter import InterpretedFunction

        self._interpreted = InterpretedFunction(kernel.fn)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **options: Any) -> None:
            tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
            with _checked(tensors):
                self._interpreted[grid](*arguments, **options)

        return launch


def _ranges(tensors: list[torch.Tensor]) -> np.ndarray[Any, Any]:
    """First and last address of an element of each tensor, sorted."""
    found = []
    for tensor in tensors:
        if tensor.numel():
            reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
            found.append((tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size()))
    return np.array(sorted(found), dtype=np.uint64).reshape(-1, 2)


@contextmanager
def _checked(tensors: list[torch.Tensor]) -> Iterator[None]:
    from triton.runtime.interpreter import interpreter_builder as builder

    kind, ranges = type(builder), _ranges(tensors)
    written: set[int] = set()
    originals = {
        name: getattr(kind, name)
        for name in ("create_masked_load", "create_masked_store", "create_barrier", "set_grid_idx")
    }

    def check(addresses: Any, mask: Any, what: str) -> list[int]:
        used = addresses.data[mask.data.astype(bool)].reshape(-1)
        place = np.searchsorted(ranges[:, 0], used, side="right").astype(np.int64) - 1
        bad = (place < 0) | (used > ranges[np.maximum(place, 0), 1])
        if bad.any():
            raise OutOfBounds(f"{what} of {int(bad.sum())} addresses outside the tensors")
        return [int(address) for address in used]

    def load(self: Any, addresses: Any, mask: Any, *rest: Any) -> Any:
        if not written.isdisjoint(check(addresses, mask, "load")):
            raise MissingBarrier("load of what this program stored, with no barrier between")
        return originals["create_masked_load"](self, addresses, mask, *rest)

    def store(self: Any, addresses: Any, value: Any, mask: Any, *rest: Any) -> Any:
        written.update(check(addresses, mask, "store"))
        return originals["create_masked_store"](self, addresses, value, mask, *rest)

    def forget(name: str) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            written.clear()
            return originals[name](self, *arguments, **options)

        return call

    replaced = {"create_masked_load": load, "create_masked_store": store}
    for name in ("create_barrier", "set_grid_idx"):
        replaced[name] = forget(name)
    try:
        for name, function in replaced.items():
            setattr(kind, name, function)
        yield
    finally:
        for name, function in originals.items():
            setattr(kind, name, function)
