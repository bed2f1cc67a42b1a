"""What an adapter is told about the work at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from voicehub.specs.phase import TrainingPhaseSpec


@dataclass(slots=True)
class TrainingContext:
    """One phase over one micro-batch.

    Attributes:
        phase: The phase to run.
        inputs: The collated batch on the device: a mapping, or a tuple of a plain data loader.
        step: Zero-based optimizer step; constant within an accumulation window.
        epoch: Fractional epoch.
        is_training: False in evaluation and prediction.
        metadata: Free for the Trainer and recipes, for example ``{"evaluation": True}``.
    """

    phase: TrainingPhaseSpec
    inputs: Any
    step: int | None = None
    epoch: float | None = None
    is_training: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def phase_name(self) -> str:
        """Name of the phase."""
        return self.phase.name

    @property
    def optimizer_names(self) -> tuple[str, ...]:
        """Routes the phase steps."""
        return self.phase.optimizer_names

    def with_inputs(self, inputs: Any) -> TrainingContext:
        """Return a copy with other inputs."""
        return replace(self, inputs=inputs)
