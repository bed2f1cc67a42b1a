"""Run real code on tensors without numbers.

Floating tensors are ``FakeTensor``s: shape, dtype and device, no storage. Integers and booleans
(lengths, ids, masks) are real and small, so a recipe may read them, index with them and decide by
them. What a recipe reads from a floating tensor (a loss, a norm) is 1.0: finite, as in a healthy
step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from voicehub.errors import VoiceHubError

aten = torch.ops.aten
ValueT = TypeVar("ValueT")

#: Ops without tensor inputs whose floating results are made without numbers.
_FACTORIES = frozenset(
    {"empty", "empty_strided", "full", "normal", "ones", "rand", "randn", "zeros"}
)
_INDEXING = frozenset(
    {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
    | {aten._index_put_impl_.default, aten._unsafe_index.Tensor, aten._unsafe_index_put.default}
)


class ShapesOnlyError(VoiceHubError):
    """A recipe asks for numbers that a rehearsal does not have."""


class Watcher(Protocol):
    """Told every op with its results."""

    def __call__(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None: ...


class ShapesOnly(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The mode; enter it around model building and steps.

    Args:
        watch: told of every op.
    """

    def __init__(self, watch: Watcher | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._watch = watch

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Execute one op."""
        kwargs = kwargs or {}
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if any(isinstance(tensor, FakeTensor) for tensor in inputs):
            result = self._without_numbers(func, args, kwargs)
        elif not inputs and _is_floating_factory(func, kwargs):
            with self.fake:
                result = func(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
        if self._watch is not None:
            self._watch(func, args, kwargs, result)
        return result

    def _without_numbers(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in _READS:
            return _READS[func](args[0])
        if func in _INDEXING:
            args = (args[0], _as_positions(args[1]), *args[2:])
        if func in _TESTS and _TESTS[func][0](args):
            return torch.full(args[0].shape, _TESTS[func][1], dtype=torch.bool)
        try:
            with self.fake:
                return func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise ShapesOnlyError(
                f"The recipe makes shapes or decisions from the numbers of a floating tensor "
                f"({func}), which are not known before it runs."
            ) from error

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Enter it, with conversions of modules that work inside."""
        # torch starts threads for devices with the first backward, also for what shapes pretend
        # to be on; of a process with such threads no copy could compute gradients.
        torch.zeros((), requires_grad=True).backward()  # type: ignore[no-untyped-call]
        with self, mock.patch.object(nn.Module, "_apply", _Conversions().apply):
            yield

    def hollow(self, value: ValueT) -> ValueT:
        """Return nested containers with floating tensors in them replaced by ones of shape alone.

        Sizes and strides stay.
        """
        return tree_map_only(Tensor, self._hollow_tensor, value)  # type: ignore[no-any-return]

    def _hollow_tensor(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor) or not tensor.is_floating_point():
            return tensor
        with self.fake:
            return _like(tensor)

    def hollow_module(self, module: nn.Module) -> None:
        """Put new parameters and buffers without numbers where a module has real ones."""
        made: dict[nn.Parameter, nn.Parameter] = {}  # tied ones stay tied
        for part in module.modules():
            for name, parameter in part._parameters.items():
                if parameter is None or isinstance(parameter, FakeTensor):
                    continue
                if parameter not in made:
                    hollowed = self._hollow_tensor(parameter)
                    made[parameter] = nn.Parameter(hollowed, parameter.requires_grad)
                part._parameters[name] = made[parameter]
            for name, buffer in part._buffers.items():
                if buffer is not None:
                    part._buffers[name] = self._hollow_tensor(buffer)


class _Conversions:
    """``Module._apply`` that puts new parameters in place of converted ones.

    torch's own swaps their contents, which it refuses for tensors without storage.
    """

    def __init__(self) -> None:
        self._converted: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # tied ones stay tied

    @property
    def apply(self) -> Callable[..., nn.Module]:
        """The method, to be put into the class."""

        def _apply(module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
            for child in module.children() if recurse else ():
                child._apply(fn)  # type: ignore[no-untyped-call]
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    module._parameters[name] = self._of(parameter, fn)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = fn(buffer)
            return module

        return _apply

    def _of(self, parameter: nn.Parameter, fn: Callable[[Tensor], Tensor]) -> nn.Parameter:
        known = self._converted.get(id(parameter))
        if known is not None and known[0] is parameter:
            return known[1]
        with torch.no_grad():
            changed = fn(parameter)
        if changed is parameter:
            return parameter
        new = nn.Parameter(changed, requires_grad=parameter.requires_grad)
        self._converted[id(parameter)] = (parameter, new)
        return new


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _is_floating_factory(func: Any, kwargs: Mapping[str, Any]) -> bool:
    if func._schema.name.partition("::")[2] not in _FACTORIES:
        return False
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return bool(dtype.is_floating_point)


def _read(tensor: Tensor) -> float | int | bool:
    if tensor.dtype is torch.bool:
        return True
    return 1.0 if tensor.is_floating_point() else 1


def _as_positions(indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Boolean masks as positions: those of real masks are known, and give known shapes."""
    found: list[Tensor | None] = []
    for index in indices:
        if index is None or index.dtype is not torch.bool or isinstance(index, FakeTensor):
            found.append(index)
        else:
            found.extend(index.nonzero().unbind(1))
    return found


_READS: dict[Any, Callable[[Tensor], float | int | bool]] = {
    aten._local_scalar_dense.default: _read,
    aten.is_nonzero.default: lambda tensor: True,
    aten.equal.default: lambda tensor: True,
    aten.allclose.default: lambda tensor: True,
}


def _always(args: tuple[Any, ...]) -> bool:
    return True


def _with_itself(args: tuple[Any, ...]) -> bool:
    return len(args) > 1 and args[0] is args[1]


#: Questions about numbers that have an answer in a healthy step: nothing is NaN or infinite.
_TESTS: dict[Any, tuple[Callable[[tuple[Any, ...]], bool], bool]] = {
    aten.isnan.default: (_always, False),
    aten.isinf.default: (_always, False),
    aten.ne.Tensor: (_with_itself, False),
    aten.eq.Tensor: (_with_itself, True),
}
