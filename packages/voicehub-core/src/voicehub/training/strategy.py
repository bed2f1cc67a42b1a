"""How a step is executed: the strategy interface and its registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voicehub._lazy import lazy_exports

if TYPE_CHECKING:
    from voicehub.strategies.base import TrainingStrategy
    from voicehub.strategies.registry import (
        get_training_strategy,
        list_training_strategies,
        register_training_strategy,
        unregister_training_strategy,
    )

__all__ = [
    "TrainingStrategy",
    "get_training_strategy",
    "list_training_strategies",
    "register_training_strategy",
    "unregister_training_strategy",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "TrainingStrategy": "voicehub.strategies.base",
        "get_training_strategy": "voicehub.strategies.registry",
        "list_training_strategies": "voicehub.strategies.registry",
        "register_training_strategy": "voicehub.strategies.registry",
        "unregister_training_strategy": "voicehub.strategies.registry",
    },
)
