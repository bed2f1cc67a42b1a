"""Find the adapter of a model: process overrides, the spec, entry points, the base adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.plain import ModuleAdapter
from voicehub.errors import ConfigurationError, PluginError
from voicehub.plugins import loading
from voicehub.plugins.groups import ADAPTER_FACTORY
from voicehub.specs.model import ModelTrainingSpec
from voicehub.suggest import did_you_mean

AdapterFactory = Callable[[Any, ModelTrainingSpec], TrainingAdapter]

_by_model: dict[str, AdapterFactory] = {}
_by_family: dict[str, AdapterFactory] = {}


class AutoTrainingAdapter:
    """Builds the adapter of a model; a factory is called as ``factory(model, spec)``.

    Precedence: ``register()``, the spec's ``adapter_factory``, ``register_family()``, the entry
    point named after the model type, the one named after the family, the base adapter.
    """

    def __init__(self) -> None:
        raise OSError("AutoTrainingAdapter is not instantiated; call from_model().")

    @classmethod
    def from_model(cls, model: Any, *, spec: ModelTrainingSpec | None = None) -> TrainingAdapter:
        """Return the adapter of a wrapper, or of a plain module; nothing loads yet.

        Raises:
            ConfigurationError: the object has no training spec and is no module.
            PluginError: the factory cannot be imported, or returns no adapter.
        """
        if spec is None:
            spec = getattr(model, "training_spec", None)
        if spec is None:
            if isinstance(model, nn.Module):
                return ModuleAdapter(model)
            raise ConfigurationError(
                f"Cannot train a {type(model).__name__}: expected a model wrapper with a "
                "training_spec, or a torch.nn.Module."
            )
        factory, specialised = _factory(spec)
        adapter = factory(model, spec)
        if not isinstance(adapter, TrainingAdapter):
            raise PluginError(
                f"The adapter factory of {spec.model_type!r} returned a "
                f"{type(adapter).__name__}, not a TrainingAdapter."
            )
        adapter.is_specialised = adapter.is_specialised or specialised
        return adapter

    @classmethod
    def register(cls, model_type: str, factory: AdapterFactory, *, exist_ok: bool = False) -> None:
        """Use a factory for a model type in this process; it wins over everything else.

        Raises:
            ConfigurationError: the type already has one and ``exist_ok`` is false.
        """
        _add(_by_model, model_type, factory, exist_ok)

    @classmethod
    def unregister(cls, model_type: str) -> None:
        """Remove what ``register`` added."""
        _remove(_by_model, model_type)

    @classmethod
    def register_family(
        cls, family: str, factory: AdapterFactory, *, exist_ok: bool = False
    ) -> None:
        """Use a factory for a family in this process, where no type has its own.

        Raises:
            ConfigurationError: the family already has one and ``exist_ok`` is false.
        """
        _add(_by_family, family, factory, exist_ok)

    @classmethod
    def unregister_family(cls, family: str) -> None:
        """Remove what ``register_family`` added."""
        _remove(_by_family, family)

    @classmethod
    def available_models(cls) -> tuple[str, ...]:
        """Return the model types registered in this process."""
        return tuple(sorted(_by_model))

    @classmethod
    def available_families(cls) -> tuple[str, ...]:
        """Return the families registered in this process."""
        return tuple(sorted(_by_family))


def _factory(spec: ModelTrainingSpec) -> tuple[AdapterFactory, bool]:
    """Return the factory, and whether it was declared for this very model type."""
    if spec.model_type in _by_model:
        return _by_model[spec.model_type], True
    if spec.adapter_factory is not None:
        what = f"training adapter factory of {spec.model_type!r}"
        return _checked(loading.resolve_reference(spec.adapter_factory, what=what), what), True
    if spec.family in _by_family:
        return _by_family[spec.family], False
    declared = loading.names(ADAPTER_FACTORY)
    for name, specialised in ((spec.model_type, True), (spec.family, False)):
        if name in declared:
            loaded = loading.load(ADAPTER_FACTORY, name)
            return _checked(loaded, f"adapter factory {name!r}"), specialised
    return TrainingAdapter, False


def _checked(factory: object, what: str) -> AdapterFactory:
    if not callable(factory):
        raise PluginError(f"The {what} must be callable, got {type(factory).__name__}.")
    return factory


def _add(
    table: dict[str, AdapterFactory], name: str, factory: AdapterFactory, exist_ok: bool
) -> None:
    if not callable(factory):
        raise TypeError(f"An adapter factory must be callable, got {type(factory).__name__}.")
    if name in table and not exist_ok:
        raise ConfigurationError(
            f"{name!r} already has a training adapter; pass exist_ok=True to replace it."
        )
    table[name] = factory


def _remove(table: dict[str, AdapterFactory], name: str) -> None:
    if name not in table:
        raise ConfigurationError(
            f"{name!r} has no registered training adapter.{did_you_mean(name, table)}"
        )
    del table[name]
