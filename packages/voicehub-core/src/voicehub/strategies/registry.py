"""Strategies by name: built in, registered in this process, or from an installed plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from voicehub.errors import ConfigurationError
from voicehub.plugins import loading
from voicehub.strategies.base import TrainingStrategy
from voicehub.strategies.single import SingleProcessStrategy
from voicehub.suggest import did_you_mean

if TYPE_CHECKING:
    from voicehub.trainer.arguments import TrainingArguments

StrategyFactory = Callable[["TrainingArguments"], TrainingStrategy]


class UnknownStrategyError(ConfigurationError, KeyError):
    """A strategy is asked for by a name that none has."""

    def __str__(self) -> str:
        return str(self.args[0])


def _ddp(args: TrainingArguments) -> TrainingStrategy:
    from voicehub.strategies.ddp import DataParallelStrategy  # torch.distributed, when asked for

    return DataParallelStrategy(args)


def _fsdp(args: TrainingArguments) -> TrainingStrategy:
    from voicehub.strategies.fsdp import FullyShardedStrategy

    return FullyShardedStrategy(args)


_BUILT_IN: dict[str, StrategyFactory] = {
    "torch": SingleProcessStrategy,
    "ddp": _ddp,
    "fsdp": _fsdp,
}
_registered: dict[str, StrategyFactory] = {}


def register_training_strategy(
    name: str, factory: StrategyFactory, *, exist_ok: bool = False
) -> None:
    """Make a strategy available by name in this process.

    Raises:
        ValueError: the name is taken.
    """
    taken = name in _BUILT_IN or (name in _registered and not exist_ok)
    if taken:
        raise ValueError(f"A training strategy named '{name}' exists already.")
    _registered[name] = factory


def unregister_training_strategy(name: str) -> None:
    """Take back a registration; built-in strategies stay."""
    if name in _BUILT_IN:
        raise ValueError(f"The training strategy '{name}' is built in and cannot be removed.")
    if name not in _registered:
        raise KeyError(f"No training strategy named '{name}' is registered.")
    del _registered[name]


def list_training_strategies() -> list[str]:
    """Names that ``get_training_strategy`` accepts, without importing any plugin."""
    return sorted({*_BUILT_IN, *_registered, *loading.names("voicehub.strategies")})


def get_training_strategy(name: str) -> StrategyFactory:
    """The factory of a strategy; only the named plugin is imported.

    Raises:
        UnknownStrategyError: (a KeyError) no strategy has that name.
    """
    for known in (_registered, _BUILT_IN):
        if name in known:
            return known[name]
    if name in loading.names("voicehub.strategies"):
        return cast(StrategyFactory, loading.load("voicehub.strategies", name))
    available = list_training_strategies()
    raise UnknownStrategyError(
        f"Unknown training strategy '{name}'; available: {', '.join(available)}."
        f"{did_you_mean(name, available)}"
    )


def resolve_strategy(
    strategy: str | TrainingStrategy | None, args: TrainingArguments
) -> TrainingStrategy:
    """An instance from a name, an instance or nothing (``args.strategy``)."""
    if isinstance(strategy, TrainingStrategy):
        return strategy
    if strategy is not None and not isinstance(strategy, str):
        raise TypeError(f"training_strategy must be a name or a strategy, got {strategy!r}.")
    return get_training_strategy(strategy or args.strategy)(args)
