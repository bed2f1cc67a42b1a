"""Run Triton kernels on the CPU and refuse what Triton's own interpreter lets pass.

Refused: a load or store outside the tensors of the launch; a load or store of what the same program
stored earlier with no barrier between, which other threads of a GPU need not see, and whose order
nothing says; a load or store of what another program of the launch stored; a store of two lanes to
one place.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch


class OutOfBounds(AssertionError):
    """An access outside every tensor of the launch."""


class MissingBarrier(AssertionError):
    """A load or store of what this program wrote since its last barrier."""


class Race(AssertionError):
    """Two programs, or two lanes of one, at the same place, one of which writes."""


class StrictKernel:
    """A ``@triton.jit`` kernel that is launched as usual, ``kernel[grid](...)``, but checked."""

    def __init__(self, kernel: Any) -> None:
        from triton.runtime.interpreter import InterpretedFunction

        self._interpreted = InterpretedFunction(kernel.fn)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **options: Any) -> None:
            tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
            with _device_functions(), _checked(tensors):
                self._interpreted[grid](*arguments, **options)

        return launch


def weakened(kernel: Any, old: str, new: str, folder: Path) -> StrictKernel:
    """The kernel with a part of its source replaced, to see that its absence is caught.

    Args:
        kernel: a ``@triton.jit`` function.
        old, new: text in its source or in that of a function it calls, wherever it stands.
        folder: where the changed source may lie.
    """
    names = dict(kernel.fn.__globals__)
    called = [names.get(name) for name in kernel.fn.__code__.co_names]
    changed = False
    for function in (*called, kernel):  # the kernel last, since it takes the others' new selves
        inner = getattr(function, "fn", None)
        source = (
            textwrap.dedent(inspect.getsource(inner)) if isinstance(inner, FunctionType) else ""
        )
        if old not in source and function is not kernel:
            continue
        changed = changed or old in source
        path = folder / f"{inner.__name__}.py"
        path.write_text(source.replace(old, new))
        own = names if function is kernel else dict(inner.__globals__)
        exec(compile(path.read_text(), str(path), "exec"), own)
        names[inner.__name__] = own[inner.__name__]
    assert changed, f"neither {kernel.fn.__name__} nor what it calls has {old!r}"
    return StrictKernel(names[kernel.fn.__name__])


def cause(error: BaseException) -> BaseException:
    """What the interpreter wraps into an error of its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@cache
def _interpreted(function: Any) -> Any:
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction(function)


@contextmanager
def _device_functions() -> Iterator[None]:
    """Let kernels call ``@triton.jit`` functions, Triton's own among them, while interpreted."""
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.jit import JITFunction

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        return _interpreted(self.fn).rewrite()(*arguments, **options)

    # Its own calls patch the language every time, which takes most of the time, and leave it so;
    # here all of it is patched once before, and put back.
    nothing = FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core})
    original: Any = JITFunction.__call__
    scope = interpreter._patch_lang(nothing)
    JITFunction.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        JITFunction.__call__ = original  # type: ignore[method-assign]
        scope.restore()


def _ranges(tensors: list[torch.Tensor]) -> np.ndarray[Any, Any]:
    """First and last address of an element of each tensor, sorted."""
    found = []
    for tensor in tensors:
        if tensor.numel():
            reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
            found.append((tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size()))
    return np.array(sorted(found), dtype=np.uint64).reshape(-1, 2)


class _Accesses:
    """What was stored since the last barrier, by this program, and by the ones before it."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._ranges = _ranges(tensors)
        self._recent: set[int] = set()
        self._own: set[int] = set()
        self._others: set[int] = set()

    def check(self, addresses: Any, mask: Any, what: str) -> list[int]:
        """Refuse an access; else return its addresses."""
        places = np.broadcast_to(
            addresses.data, np.broadcast_shapes(addresses.data.shape, mask.data.shape)
        )
        used = places[np.broadcast_to(mask.data, places.shape).astype(bool)].reshape(-1)
        ranges = self._ranges
        if used.size and not ranges.size:
            raise OutOfBounds(f"{what} of {used.size} addresses outside the tensors")
        place = np.searchsorted(ranges[:, 0], used, side="right").astype(np.int64) - 1
        bad = (place < 0) | (used > ranges[np.maximum(place, 0), 1]) if used.size else used > 0
        if bad.any():
            raise OutOfBounds(f"{what} of {int(bad.sum())} addresses outside the tensors")
        found = [int(address) for address in used]
        if not self._recent.isdisjoint(found):
            raise MissingBarrier(f"{what} of what this program stored, with no barrier between")
        if not self._others.isdisjoint(found):
            raise Race(f"{what} of what another program stored")
        return found

    def store(self, addresses: list[int]) -> None:
        if len(set(addresses)) != len(addresses):
            raise Race("two lanes store to one place")
        self._recent.update(addresses)
        self._own.update(addresses)

    def barrier(self) -> None:
        self._recent.clear()

    def next_program(self) -> None:
        self._others |= self._own
        self._own.clear()
        self._recent.clear()


@contextmanager
def _checked(tensors: list[torch.Tensor]) -> Iterator[None]:
    from triton.runtime.interpreter import interpreter_builder as builder

    kind, accesses = type(builder), _Accesses(tensors)
    originals = {
        name: getattr(kind, name)
        for name in ("create_masked_load", "create_masked_store", "create_barrier", "set_grid_idx")
    }

    def load(self: Any, addresses: Any, mask: Any, *rest: Any) -> Any:
        accesses.check(addresses, mask, "load")
        return originals["create_masked_load"](self, addresses, mask, *rest)

    def store(self: Any, addresses: Any, value: Any, mask: Any, *rest: Any) -> Any:
        accesses.store(accesses.check(addresses, mask, "store"))
        return originals["create_masked_store"](self, addresses, value, mask, *rest)

    def after(name: str, event: Callable[[], None]) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            event()
            return originals[name](self, *arguments, **options)

        return call

    replaced = {
        "create_masked_load": load,
        "create_masked_store": store,
        "create_barrier": after("create_barrier", accesses.barrier),
        "set_grid_idx": after("set_grid_idx", accesses.next_program),
    }
    try:
        for name, function in replaced.items():
            setattr(kind, name, function)
        yield
    finally:
        for name, function in originals.items():
            setattr(kind, name, function)
