"""Optimizers and schedulers by route."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voicehub._lazy import lazy_exports

if TYPE_CHECKING:
    from voicehub.optim.bundle import OptimizerBundle, SchedulerBundle

__all__ = [
    "OptimizerBundle",
    "SchedulerBundle",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "OptimizerBundle": "voicehub.optim.bundle",
        "SchedulerBundle": "voicehub.optim.bundle",
    },
)
