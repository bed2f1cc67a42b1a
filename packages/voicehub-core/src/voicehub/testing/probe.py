"""An adapter set up for measurement: losses and gradients of its phases on given samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from voicehub.adapters.context import TrainingContext
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub.trainer.composition import seed_everything

if TYPE_CHECKING:
    from voicehub.adapters.base import TrainingAdapter
    from voicehub.testing.case import ConformanceCase

SEED = 20


@dataclass(frozen=True)
class PhaseResult:
    """One phase on one batch.

    Attributes:
        loss: Sum over items (the mean times ``items``).
        items: What the mean was taken over; the number of samples where the phase does not say.
        gradients: Of ``loss``, by parameter name, in float64; None where none arrived.
    """

    loss: float
    items: float
    gradients: dict[str, Tensor | None]


def build_adapter(
    case: ConformanceCase, *, dropout: float = 0.0, dtype: torch.dtype = torch.float32
) -> TrainingAdapter:
    """Return a set-up adapter whose weights are a function of the case alone."""
    seed_everything(SEED)
    adapter = case.build(dropout=dropout)
    adapter.setup()
    if dtype is not torch.float32:
        adapter.module.to(dtype)
        state = adapter.recipe_state_dict()
        if state:  # averages of weights and the like follow them
            adapter.load_recipe_state_dict(cast_floats(state, dtype))
    return adapter


class Probe:
    """Measures phases of one adapter without changing its weights.

    Args:
        case: The case.
        dropout: Passed to its ``build``.
        double: Compute in float64 where the case can.
    """

    def __init__(self, case: ConformanceCase, *, dropout: float = 0.0, double: bool = True) -> None:
        self.case = case
        self.dtype = torch.float64 if double and case.float64 else torch.float32
        self.adapter = build_adapter(case, dropout=dropout, dtype=self.dtype)
        self.adapter.train_mode()
        #: Relative difference that rounding explains.
        self.tolerance = 1e-9 if self.dtype is torch.float64 else 1e-4

    def batch(self, items: Sequence[Any]) -> tuple[Any, Mapping[str, Any], str | None]:
        """Return model inputs, batch info and the phase the batch names."""
        return split_batch(self.case.collate(items), self.dtype)

    def measure(
        self, items: Sequence[Any], change: Callable[[Any], Any] | None = None
    ) -> dict[str, PhaseResult]:
        """Run every phase that the samples are for, forward and backward.

        Args:
            items: Samples.
            change: Applied to the collated inputs first.
        """
        inputs, info, named = self.batch(items)
        if change is not None:
            inputs = change(inputs)
        phases = (self.adapter.select_phase(named),) if named else self.adapter.phases
        return {phase.name: self._run(phase, inputs, info, len(items)) for phase in phases}

    def _run(
        self, phase: TrainingPhaseSpec, inputs: Any, info: Mapping[str, Any], size: int
    ) -> PhaseResult:
        self.adapter.module.zero_grad(set_to_none=True)
        context = TrainingContext(phase, inputs, 0, 0.0, True, info)
        with self.adapter.phase_boundaries(phase):
            output = self.adapter.execute_training_phase(context)
            assert output.loss is not None, f"phase {phase.name!r} returned no loss"
            output.loss.backward()  # type: ignore[no-untyped-call]
        loss = float(output.loss.detach())
        items = float(size if output.num_items is None else output.num_items)
        gradients = {
            name: None if p.grad is None else p.grad.detach().double() * items
            for name, p in self.adapter.module.named_parameters()
        }
        self.adapter.module.zero_grad(set_to_none=True)
        return PhaseResult(loss * items, items, gradients)


def split_batch(
    batch: Any, dtype: torch.dtype = torch.float32
) -> tuple[Any, Mapping[str, Any], str | None]:
    """Take a collated batch apart as the Trainer does: inputs, info, named phase."""
    info: Mapping[str, Any] = {}
    phase = None
    if isinstance(batch, dict):
        batch = dict(batch)
        info = batch.pop("batch_info", None) or {}
        phase = batch.pop("training_phase", None)
    return cast_floats(batch, dtype), info, getattr(phase, "name", phase)


def cast_floats(value: Any, dtype: torch.dtype) -> Any:
    """Return nested tensors with the floating ones in another precision."""
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: cast_floats(item, dtype) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(cast_floats(item, dtype) for item in value)
    if isinstance(value, (list, tuple)):
        return type(value)(cast_floats(item, dtype) for item in value)
    return value


def total_gradient(result: PhaseResult) -> Tensor:
    """Return all gradients of a result as one vector, zeros where none arrived."""
    parts = [g.flatten() for g in result.gradients.values() if g is not None]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def added(first: PhaseResult, second: PhaseResult) -> PhaseResult:
    """Return what both batches together should give."""
    gradients: dict[str, Tensor | None] = {}
    for name, one in first.gradients.items():
        other = second.gradients[name]
        gradients[name] = one if other is None else other if one is None else one + other
    return PhaseResult(first.loss + second.loss, first.items + second.items, gradients)


def difference(first: PhaseResult, second: PhaseResult) -> tuple[float, str]:
    """Return the largest relative difference of loss and gradients, and where it is."""
    worst, where = abs(first.loss - second.loss) / max(abs(second.loss), 1e-12), "the loss"
    if not worst < float("inf"):
        return float("inf"), "the loss (not finite)"
    scale = max(float(total_gradient(second).norm()), 1e-12)
    for name, one in first.gradients.items():
        other = second.gradients[name]
        if one is None and other is None:
            continue
        gap = float((_or_zero(one, other) - _or_zero(other, one)).norm()) / scale
        if not gap <= worst:
            worst, where = gap, f"the gradient of {name}"
    return worst, where


def _or_zero(value: Tensor | None, like: Tensor | None) -> Tensor:
    if value is not None:
        return value
    assert like is not None
    return torch.zeros_like(like)
