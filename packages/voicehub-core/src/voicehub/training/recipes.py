"""Bases for recipes of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voicehub._lazy import lazy_exports

if TYPE_CHECKING:
    from voicehub.adapters.auto import AutoTrainingAdapter
    from voicehub.adapters.base import TrainingAdapter
    from voicehub.adapters.plain import ModuleAdapter

__all__ = [
    "AutoTrainingAdapter",
    "ModuleAdapter",
    "TrainingAdapter",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AutoTrainingAdapter": "voicehub.adapters.auto",
        "ModuleAdapter": "voicehub.adapters.plain",
        "TrainingAdapter": "voicehub.adapters.base",
    },
)
