"""Load one plugin entry by name; a plugin that fails breaks nothing but itself."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable
from functools import lru_cache

from voicehub.errors import PluginError
from voicehub.plugins import discovery
from voicehub.plugins.discovery import PluginEntry, PluginState
from voicehub.suggest import did_you_mean

names = discovery.names

_loaded: dict[PluginEntry, object] = {}
_failures: dict[PluginEntry, str] = {}
_seconds: dict[PluginEntry, float] = {}


class PluginImportError(PluginError, ImportError):
    """A lazy reference or a plugin could not be imported; the message says whose and why."""


def load(group: str, name: str) -> object:
    """Import and return what the entry ``name`` of ``group`` points at, once per process.

    Raises:
        PluginError: no such entry, it is disabled, two distributions claim the name, or it was
            written for an unsupported plugin API (all decided before anything is imported).
        PluginImportError: its import failed; the message names the distribution and the reason.
    """
    entry = _select(group, name)
    if entry in _loaded:
        return _loaded[entry]
    if entry in _failures:
        raise PluginImportError(_failures[entry])
    owner = f"plugin {name!r} of {entry.distribution} {entry.version} ({group})"
    began = time.perf_counter()
    try:
        value = resolve_reference(entry.value, what=owner)
    except PluginError as error:
        _failures[entry] = str(error)
        raise
    finally:
        _seconds[entry] = time.perf_counter() - began
    _loaded[entry] = value
    return value


def load_seconds(entry: PluginEntry) -> float | None:
    """Return how long the import of an entry took in this process; None where there was none."""
    return _seconds.get(_as_found(entry))


def resolve_reference(reference: str, *, what: str = "reference") -> object:
    """Import ``"module:attribute"`` (or a bare ``"module"``) and return what it names.

    Raises:
        PluginImportError: the module fails to import or lacks the attribute.
    """
    module_name, _, attributes = reference.partition(":")
    try:
        value: object = importlib.import_module(module_name.strip())
        for attribute in filter(None, attributes.strip().split(".")):
            value = getattr(value, attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() of a plugin must not end the host
        raise PluginImportError(
            f"Could not resolve {what}: {reference!r} failed with {type(error).__name__}: {error}"
        ) from error
    return value


def inspect(groups: Iterable[str] | None = None, *, load_them: bool = False) -> list[PluginEntry]:
    """Return entries with what this process knows of them: loaded, broken with the reason, ...

    Args:
        groups: Groups to report; None reports all.
        load_them: Load every available entry of these groups first, so that broken ones show.
    """
    wanted = None if groups is None else set(groups)
    report: list[PluginEntry] = []
    for entry in discovery.entry_points():
        if wanted is not None and entry.group not in wanted:
            continue
        entry = _checked_against_core(entry)
        if load_them and entry.state is PluginState.AVAILABLE:
            try:
                load(entry.group, entry.name)
            except PluginError as error:
                _failures.setdefault(entry, str(error))
        report.append(_with_outcome(entry))
    return report


def refresh() -> None:
    """Forget discovered metadata, loaded objects and remembered failures."""
    discovery.refresh()
    _loaded.clear()
    _failures.clear()
    _seconds.clear()


def _checked_against_core(entry: PluginEntry) -> PluginEntry:
    """Mark an entry unsupported whose distribution asks for another version of the core."""
    if entry.state is not PluginState.AVAILABLE or not entry.requires_core:
        return entry
    installed = _core_version()
    if _allows(entry.requires_core, installed):
        return entry
    reason = (
        f"{entry.distribution} {entry.version} needs voicehub-core {entry.requires_core}; "
        f"{installed} is installed. Install versions of the two that match."
    )
    return entry._replace(state=PluginState.UNSUPPORTED, reason=reason)


@lru_cache(maxsize=1)
def _core_version() -> str:
    from importlib_metadata import version

    return version("voicehub-core")


@lru_cache(maxsize=256)
def _allows(specifier: str, version: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return True  # what an installer accepted is not ours to judge


def _as_found(entry: PluginEntry) -> PluginEntry:
    """Return an entry as discovery lists it: outcomes of loading are kept under that."""
    if entry.state in (PluginState.LOADED, PluginState.BROKEN):
        return entry._replace(state=PluginState.AVAILABLE, reason="")
    return entry


def _with_outcome(entry: PluginEntry) -> PluginEntry:
    if entry in _failures:
        return entry._replace(state=PluginState.BROKEN, reason=_failures[entry])
    if entry in _loaded:
        return entry._replace(state=PluginState.LOADED)
    return entry


def _select(group: str, name: str) -> PluginEntry:
    entries = discovery.entry_points(group)
    claims = [entry for entry in entries if entry.name == name]
    usable = [entry for entry in claims if entry.state is not PluginState.DISABLED]
    if not claims:
        known = discovery.names(group)
        raise PluginError(
            f"No installed plugin provides {name!r} in {group}; known: "
            f"{', '.join(known) or 'none'}.{did_you_mean(name, known)}"
        )
    if not usable:
        owners = " and ".join(entry.distribution for entry in claims)
        raise PluginError(f"Plugin {name!r} ({group}) of {owners} is {claims[0].reason}.")
    entry = _checked_against_core(usable[0])
    if entry.state is not PluginState.AVAILABLE:
        raise PluginError(f"Plugin {name!r} cannot be used: {entry.reason}")
    return entry
