"""Find training specs by model type: those registered in this process, then plugins."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from voicehub.errors import ConfigurationError, PluginError, RecipeError
from voicehub.plugins import loading
from voicehub.plugins.groups import TRAINING_SPECS
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask
from voicehub.suggest import did_you_mean

_registered: dict[str, ModelTrainingSpec] = {}
_aliases: dict[str, str] = {}


class UnknownModelTypeError(ConfigurationError, KeyError):
    """No spec has the name asked for."""

    # KeyError would show the repr of its message.
    __str__ = Exception.__str__


def get_training_spec(name: str) -> ModelTrainingSpec:
    """Return the spec of a model type, importing only the module that declares it.

    Raises:
        UnknownModelTypeError: (a KeyError) neither this process nor a plugin declares it.
        PluginError: the plugin that declares it is broken, disabled, unsupported or contested.
    """
    if not isinstance(name, str):
        raise TypeError(f"A model type is a string, got {type(name).__name__}.")
    wanted = _normal(name)
    wanted = _aliases.get(wanted, wanted)
    if wanted in _registered:
        return _registered[wanted]
    for known in loading.names(TRAINING_SPECS):
        if _normal(known) == wanted:
            return _from_plugin(known)
    disabled = [
        entry
        for entry in loading.inspect([TRAINING_SPECS])
        if _normal(entry.name) == wanted and entry.reason
    ]
    if disabled:
        raise PluginError(
            f"Model type {name!r} of {disabled[0].distribution} is {disabled[0].reason}."
        )
    types = known_model_types()
    raise UnknownModelTypeError(
        f"Unknown model type {name!r}; known: {', '.join(types) or 'none'}."
        f"{did_you_mean(name, types)} A family's package must be installed to be found "
        "(`voicehub plugins` lists what is)."
    )


def known_model_types() -> tuple[str, ...]:
    """Return every name that ``get_training_spec`` resolves, from metadata alone."""
    return tuple(sorted({*_registered, *_aliases, *loading.names(TRAINING_SPECS)}))


def list_training_specs(
    *,
    task: SpeechTask | str | None = None,
    support: TrainingSupport | str | None = None,
) -> tuple[ModelTrainingSpec, ...]:
    """Return all specs sorted by model type, filtered by task and support level if given.

    A plugin whose spec cannot be loaded is left out with a warning that names it.
    """
    specs = dict(_registered)
    for name in loading.names(TRAINING_SPECS):
        try:
            spec = _from_plugin(name)
        except (PluginError, RecipeError, TypeError) as error:
            warnings.warn(f"Left out model type {name!r}: {error}", RuntimeWarning, stacklevel=2)
            continue
        specs.setdefault(_normal(spec.model_type), spec)
    wanted_task = None if task is None else SpeechTask(task)
    level = None if support is None else TrainingSupport.coerce(support)
    return tuple(
        specs[name]
        for name in sorted(specs)
        if (wanted_task is None or specs[name].task is wanted_task)
        and (level is None or specs[name].support is level)
    )


def register_training_spec(
    spec: ModelTrainingSpec, *, exist_ok: bool = False, aliases: Iterable[str] = ()
) -> ModelTrainingSpec:
    """Register a spec for this process; it wins over a plugin of the same name.

    Raises:
        RecipeError: a name is already registered, or declared by a plugin, and ``exist_ok`` is
            false; or an alias collides with another model type.
    """
    if not isinstance(spec, ModelTrainingSpec):
        raise TypeError(f"Expected a ModelTrainingSpec, got {type(spec).__name__}.")
    name = _normal(spec.model_type)
    plugin_names = {_normal(known) for known in loading.names(TRAINING_SPECS)}
    if not exist_ok and (name in _registered or name in _aliases or name in plugin_names):
        raise RecipeError(
            f"Model type {spec.model_type!r} is already registered; pass exist_ok=True to replace "
            "it in this process."
        )
    others = {_normal(alias) for alias in (*spec.aliases, *aliases)} - {name}
    for alias in sorted(others):
        taken = alias in _registered or alias in plugin_names or _aliases.get(alias, name) != name
        if taken and not exist_ok:
            raise RecipeError(f"Alias {alias!r} of {spec.model_type!r} names another model type.")
    _aliases.pop(name, None)
    _registered[name] = spec
    _aliases.update(dict.fromkeys(others, name))
    return spec


def unregister_training_spec(name: str) -> None:
    """Remove a spec that ``register_training_spec`` added, with its aliases.

    Raises:
        UnknownModelTypeError: it was not registered in this process.
    """
    wanted = _normal(name)
    wanted = _aliases.get(wanted, wanted)
    if wanted not in _registered:
        raise UnknownModelTypeError(
            f"Model type {name!r} was not registered in this process."
            f"{did_you_mean(name, _registered)}"
        )
    del _registered[wanted]
    for alias in [alias for alias, target in _aliases.items() if target == wanted]:
        del _aliases[alias]


def _from_plugin(name: str) -> ModelTrainingSpec:
    value = loading.load(TRAINING_SPECS, name)
    if not isinstance(value, ModelTrainingSpec):
        raise PluginError(
            f"Plugin {name!r} in {TRAINING_SPECS} must be a ModelTrainingSpec, "
            f"got {type(value).__name__}."
        )
    if _normal(name) not in {_normal(known) for known in (value.model_type, *value.aliases)}:
        raise PluginError(
            f"Plugin {name!r} in {TRAINING_SPECS} holds the spec of {value.model_type!r}; name the "
            "entry after the model type, or list the name in the spec's aliases."
        )
    return value


def _normal(name: str) -> str:
    return name.strip().lower().replace("_", "-")
