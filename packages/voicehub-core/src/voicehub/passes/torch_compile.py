"""``torch.compile`` as a pass: calls are compiled, names and tensors stay as they are."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from voicehub.adapters.name_patterns import NamedGraph
from voicehub.passes.contract import (
    OptimizationCapabilities,
    OptimizationContext,
    OptimizationPass,
    PassResult,
)


class TorchCompilePass(OptimizationPass):
    """Compiles the calls of modules in place.

    ``nn.Module.compile`` is used and not the wrapper of ``torch.compile``, whose state has other
    names: checkpoints of a compiled and of a plain run can be exchanged as weights.

    Args:
        modules: module paths or globs; by default the model, or each component of it where there
            are several.
        backend: of ``torch.compile``. The default needs a C++ compiler on the CPU.
        mode: ``default``, ``reduce-overhead`` or ``max-autotune``.
        dynamic: whether lengths may vary without compiling again; None lets torch decide.
        fullgraph: an error where a call cannot be compiled as a whole.
    """

    pass_id: ClassVar[str] = "torch-compile"
    capabilities: ClassVar[OptimizationCapabilities] = OptimizationCapabilities(
        streaming_safe=True,
        distributed_safe=True,
        persistent=True,
        reversible=True,
        portable_export=True,
    )

    def __init__(
        self,
        *,
        modules: tuple[str, ...] = (),
        backend: str = "inductor",
        mode: str | None = None,
        dynamic: bool | None = None,
        fullgraph: bool = False,
    ) -> None:
        self.modules = tuple(modules)
        self.backend = backend
        self.mode = mode
        self.dynamic = dynamic
        self.fullgraph = fullgraph
        self._compiled: list[nn.Module] = []

    def manifest_configuration(self) -> dict[str, Any]:
        """All settings; compiled kernels round differently, so they are part of the run."""
        return {
            "modules": list(self.modules),
            "backend": self.backend,
            "mode": self.mode,
            "dynamic": self.dynamic,
            "fullgraph": self.fullgraph,
        }

    def apply(self, model: nn.Module, context: OptimizationContext) -> PassResult:
        """Replace the calls of the chosen modules.

        Raises:
            ConfigurationError: a pattern matches no module.
        """
        self._compiled = self._chosen(model)
        for module in self._compiled:
            module.compile(
                backend=self.backend,
                mode=self.mode,
                dynamic=self.dynamic,
                fullgraph=self.fullgraph,
            )
        names = {id(module): name for name, module in model.named_modules()}
        compiled = [names[id(module)] for module in self._compiled]
        return PassResult({"compiled": compiled, "torch": torch.__version__})

    def _chosen(self, model: nn.Module) -> list[nn.Module]:
        if self.modules:
            graph = NamedGraph(model)
            found = (graph.match(pattern, "TorchCompilePass") for pattern in self.modules)
            return list(dict.fromkeys(module for match in found for module in match.modules))
        return list(model.children()) if isinstance(model, nn.ModuleDict) else [model]

    def restore(self, model: nn.Module) -> None:
        """Call the modules as they were written."""
        for module in self._compiled:
            module._compiled_call_impl = None
        self._compiled = []
