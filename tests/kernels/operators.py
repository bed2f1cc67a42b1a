"""The operators of the losses, each with small inputs, so that one set of checks fits all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from voicehub.losses.linear_cross_entropy import linear_cross_entropy
from voicehub_asr_ctc.losses.divergence import consistency, uniform_divergence
from voicehub_asr_ctc.losses.ops import ctc_negative_log_likelihood
from voicehub_flow.losses import masked_velocity_error
from voicehub_vits.losses import maximum_path
from voicehub_xvector.losses.aam_softmax import aam_softmax

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Operator:
    """A loss as a function of tensors.

    Attributes:
        name: of the case.
        sizes: of its dimensions, by name.
        draw: from a generator and sizes to floating shapes' tensors, float64, and the targets.
        call: values and targets to one tensor.
        several: a size that makes it worth more than one thread.
        differentiable: whether values get gradients.
    """

    name: str
    sizes: Mapping[str, int]
    draw: Callable[..., tuple[Tensors, Tensors]]
    call: Callable[..., Tensor]
    several: Mapping[str, int]
    differentiable: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def inputs(
        self, dtype: torch.dtype = torch.float64, seed: int = 0, **sizes: int
    ) -> tuple[Tensors, Tensors]:
        """Values of a dtype, and targets; ``sizes`` replace the case's own."""
        generator = torch.Generator().manual_seed(seed)
        values, targets = self.draw(generator, **{**self.sizes, **sizes})
        return tuple(value.to(dtype) for value in values), targets

    def __call__(self, *tensors: Tensor) -> Tensor:
        return self.call(*tensors, **self.options)

    def gradients(
        self, values: Sequence[Tensor], targets: Sequence[Tensor], call: Any = None
    ) -> tuple[Tensor, ...]:
        """The result, and the gradient of its weighted sum by each value."""
        leaves = [value.detach().requires_grad_(self.differentiable) for value in values]
        result = (call or self)(*leaves, *targets)
        if not self.differentiable:
            return (result,)
        weights = torch.linspace(1.0, 2.0, max(1, result.numel()), dtype=result.dtype)
        upstream = weights[: result.numel()].reshape(result.shape)
        return (result.detach(), *torch.autograd.grad(result, leaves, upstream))


def _ctc(generator: torch.Generator, batch: int, frames: int, tokens: int, labels: int) -> Any:
    logits = _normal(generator, batch, frames, tokens)
    target = _integers(generator, 1, max(2, tokens), batch, labels)
    return (logits,), (torch.full((batch,), frames), target, torch.full((batch,), labels))


def _views(count: int) -> Callable[..., Any]:
    def draw(generator: torch.Generator, batch: int, frames: int, tokens: int) -> Any:
        logits = tuple(_normal(generator, batch, frames, tokens) for _ in range(count))
        return logits, (torch.full((batch,), frames),)

    return draw


def _alignment(generator: torch.Generator, batch: int, text: int, frames: int) -> Any:
    scores = _normal(generator, batch, text, frames)
    return (scores,), (torch.full((batch,), text), torch.full((batch,), frames))


def _velocity(generator: torch.Generator, batch: int, frames: int, channels: int) -> Any:
    tensors = tuple(_normal(generator, batch, frames, channels) for _ in range(3))
    return tensors, (torch.rand(batch, frames, generator=generator) < 0.7,)


def _heads(generator: torch.Generator, rows: int, size: int, heads: int, vocabulary: int) -> Any:
    values = _normal(generator, rows, size), _normal(generator, heads, vocabulary, size)
    labels = _integers(generator, 0, max(1, vocabulary), rows, heads)
    return values, (labels.masked_fill(torch.rand(rows, heads, generator=generator) < 0.2, -100),)


def _speakers(centres: int) -> Callable[..., Any]:
    def draw(generator: torch.Generator, batch: int, size: int, classes: int) -> Any:
        values = _normal(generator, batch, size), _normal(generator, centres * classes, size)
        return values, (_integers(generator, 0, max(1, classes), batch),)

    return draw


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _integers(generator: torch.Generator, low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape, generator=generator)


_LOGITS = {"batch": 3, "frames": 7, "tokens": 5}
_MANY_LOGITS = {"batch": 5, "frames": 140, "tokens": 401}
_MARGINS: dict[str, Any] = {"scale": 5.0, "margin": 0.2}


def _all() -> Iterator[Operator]:
    ctc = {**_LOGITS, "labels": 3}, _ctc, ctc_negative_log_likelihood
    for path in ("", "native"):
        options = {"blank": 0, "kernel": path or None}
        many = {**_MANY_LOGITS, "labels": 20}
        yield Operator(f"ctc {path}".strip(), *ctc, many, options=options)
    fewer = {**_MANY_LOGITS, "frames": 40}  # rows are sums of their own
    yield Operator("uniform divergence", _LOGITS, _views(1), uniform_divergence, fewer)
    yield Operator("consistency", _LOGITS, _views(2), consistency, fewer)
    path_sizes = {"batch": 3, "text": 4, "frames": 9}
    velocity_sizes = {"batch": 3, "frames": 7, "channels": 5}
    for path in ("", "torch"):
        yield Operator(
            f"alignment {path}".strip(),
            path_sizes,
            _alignment,
            maximum_path,
            {"batch": 6, "text": 40, "frames": 201},
            differentiable=False,
            options={"kernel": path or None},
        )
        yield Operator(
            f"velocity {path}".strip(),
            velocity_sizes,
            _velocity,
            masked_velocity_error,
            {"batch": 7, "frames": 301, "channels": 511},
            options={"kernel": path or None},
        )
    yield Operator(
        "linear cross-entropy",
        {"rows": 7, "size": 5, "heads": 2, "vocabulary": 6},
        _heads,
        lambda *tensors: linear_cross_entropy(*tensors).total,
        {"rows": 300, "size": 100, "heads": 2, "vocabulary": 515},
    )
    many = {"batch": 13, "size": 50, "classes": 333}
    for centres in (1, 2):
        options = {**_MARGINS, "sub_centres": centres}
        if centres > 1:
            options |= {"inter_top_k": 2, "inter_margin": 0.1}
        yield Operator(
            f"aam softmax {centres}",
            {"batch": 4, "size": 5, "classes": 6},
            _speakers(centres),
            aam_softmax,
            many,
            options=options,
        )


OPERATORS = tuple(_all())


class Recorder(TorchDispatchMode):
    """Remembers which of our operators ran, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, tuple[Any, ...]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace.startswith("voicehub"):
            self.calls[func] = args
        return func(*args, **(kwargs or {}))
