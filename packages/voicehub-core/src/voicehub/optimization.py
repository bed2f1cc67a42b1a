"""Optimization passes: their documented import path, as lazy re-exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voicehub._lazy import lazy_exports

if TYPE_CHECKING:
    from voicehub.passes.contract import (
        OptimizationCapabilities,
        OptimizationContext,
        OptimizationPass,
        PassResult,
    )
    from voicehub.passes.plan import OptimizationPlan
    from voicehub.passes.torch_compile import TorchCompilePass

__all__ = [
    "OptimizationCapabilities",
    "OptimizationContext",
    "OptimizationPass",
    "OptimizationPlan",
    "PassResult",
    "TorchCompilePass",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "OptimizationCapabilities": "voicehub.passes.contract",
        "OptimizationContext": "voicehub.passes.contract",
        "OptimizationPass": "voicehub.passes.contract",
        "OptimizationPlan": "voicehub.passes.plan",
        "PassResult": "voicehub.passes.contract",
        "TorchCompilePass": "voicehub.passes.torch_compile",
    },
)
