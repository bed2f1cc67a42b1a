"""Find the conformance cases that installed packages offer."""

from __future__ import annotations

from voicehub.errors import ConfigurationError, PluginError
from voicehub.plugins import loading
from voicehub.plugins.groups import CONFORMANCE, TRAINING_SPECS
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.registry import get_training_spec
from voicehub.suggest import did_you_mean
from voicehub.testing.case import ConformanceCase


def load_case(model_type: str) -> ConformanceCase:
    """Return the case of a model type.

    Raises:
        PluginError: there is none, or what the entry point names is none.
    """
    found = loading.load(CONFORMANCE, model_type)
    case = found() if isinstance(found, type) else found
    if not isinstance(case, ConformanceCase):
        raise PluginError(
            f"Plugin {model_type!r} in {CONFORMANCE} must be a ConformanceCase, got {found!r}."
        )
    if case.model_type != model_type:
        raise PluginError(
            f"The case {type(case).__name__} is named {model_type!r} in {CONFORMANCE}, but is of "
            f"the model type {case.model_type!r}."
        )
    return case


def model_types_of(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the model types that a name stands for: those with a case, and those without one.

    Args:
        name: A model type, or a family.

    Raises:
        ConfigurationError: no installed package knows the name.
    """
    offered = loading.names(CONFORMANCE)
    if name in offered:
        return (name,), ()
    declared = loading.names(TRAINING_SPECS)
    if name in declared:
        own = get_training_spec(name).model_type  # the name may be an alias
        return ((own,), ()) if own in offered else ((), (own,))
    specs = {known: spec for known in declared if (spec := _sound_spec(known)) is not None}
    types = list(dict.fromkeys(s.model_type for s in specs.values() if s.family == name))
    if not types:
        families = {spec.family for spec in specs.values()}
        raise ConfigurationError(
            f"No installed package provides the family or model type {name!r}; known: "
            f"{', '.join(sorted(families | set(declared))) or 'none'}."
            f"{did_you_mean(name, [*families, *declared])}"
        )
    with_case = tuple(known for known in types if known in offered)
    return with_case, tuple(known for known in types if known not in offered)


def _sound_spec(name: str) -> ModelTrainingSpec | None:
    """Return a spec, or None where its package is broken, which is no concern of another's."""
    try:
        return get_training_spec(name)
    except PluginError:
        return None
