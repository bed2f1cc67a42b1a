"""What an optimization pass is: its context, capabilities, result and interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from voicehub.errors import OptimizationError

Mode = Literal["training", "inference"]
Routes = Mapping[str, Sequence[tuple[str, nn.Parameter]]]


@dataclass(frozen=True)
class OptimizationContext:
    """Where a plan is applied.

    Attributes:
        mode: what the model is for.
        architecture: its model type.
        device: ``cpu``, ``cuda``, ``mps``.
        dtype: of the computation: ``float32``, ``bfloat16``, ``float16``.
        streaming: whether inputs come in pieces.
        distributed: whether several processes train.
        persist_result: whether what the pass makes of the model goes into checkpoints.
    """

    mode: Mode
    architecture: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    streaming: bool = False
    distributed: bool = False
    persist_result: bool = False


@dataclass(frozen=True)
class OptimizationCapabilities:
    """What a pass can do, for the refusal of what it cannot.

    Attributes:
        modes, devices, dtypes: where it applies; empty devices or dtypes are all.
        streaming_safe, distributed_safe: whether it holds there.
        persistent: whether checkpoints of the changed model can be written and resumed.
        reversible: whether ``restore`` undoes it.
        changes_parameter_names, changes_topology: whether the parameters are others afterwards.
        portable_export: whether ``export_portable_state`` gives the tensors of the model as it was.
    """

    modes: tuple[Mode, ...] = ("training", "inference")
    devices: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    streaming_safe: bool = False
    distributed_safe: bool = False
    persistent: bool = False
    reversible: bool = False
    changes_parameter_names: bool = False
    changes_topology: bool = False
    portable_export: bool = False

    @property
    def changes_parameters(self) -> bool:
        """Whether optimizers need routes anew."""
        return self.changes_parameter_names or self.changes_topology


@dataclass(frozen=True)
class PassResult:
    """What ``apply`` returns.

    Attributes:
        metadata: JSON about what was done, for the manifest.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)


class OptimizationPass(ABC):
    """Changes a model in place, below the components that the recipe holds.

    The components themselves stay the same objects: phases and routes refer to them.
    """

    pass_id: ClassVar[str]
    pass_version: ClassVar[int] = 1
    capabilities: ClassVar[OptimizationCapabilities]

    @abstractmethod
    def manifest_configuration(self) -> dict[str, Any]:
        """The settings, as JSON; another configuration is another run."""

    @abstractmethod
    def apply(self, model: nn.Module, context: OptimizationContext) -> PassResult:
        """Change ``model`` in place."""

    def restore(self, model: nn.Module) -> None:
        """Undo ``apply``, where the capabilities say ``reversible``."""
        raise OptimizationError(f"The pass '{self.pass_id}' cannot be undone.")

    def route_optimizer_parameters(self, model: nn.Module, names: Sequence[str]) -> Routes | None:
        """Named parameters of every optimizer after a change of topology; None has no answer."""
        return None

    def export_portable_state(self, model: nn.Module) -> Mapping[str, Tensor]:
        """The tensors under the names that the model had before, for a fresh one to load."""
        raise OptimizationError(f"The pass '{self.pass_id}' has no portable export.")
