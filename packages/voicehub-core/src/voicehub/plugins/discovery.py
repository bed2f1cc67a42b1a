"""Find plugins from installed metadata alone; nothing of a plugin is imported here.

The metadata is read once per process. ``refresh()`` forgets it, for code that installs
packages or changes ``sys.path``.

Environment:
    VOICEHUB_DISABLE_PLUGINS: comma-separated distribution or entry names to leave out.
    VOICEHUB_DISABLE_PLUGIN_AUTOLOAD: any non-empty value leaves out every plugin ...
    VOICEHUB_PLUGINS: ... but these (distribution or entry names), as pytest's ``-p`` does.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from voicehub.plugins.groups import PLUGIN_API, PREFIX, SUPPORTED_API_VERSIONS

DISABLE_VARIABLE = "VOICEHUB_DISABLE_PLUGINS"
NO_AUTOLOAD_VARIABLE = "VOICEHUB_DISABLE_PLUGIN_AUTOLOAD"
ENABLE_VARIABLE = "VOICEHUB_PLUGINS"

_SUPPORTED = tuple(f"v{number}" for number in SUPPORTED_API_VERSIONS)
# Of the core itself: no extra, no marker.
_CORE_REQUIREMENT = re.compile(
    r"^Requires-Dist: *voicehub[-_.]core *([^;\n\[]*)$", re.MULTILINE | re.IGNORECASE
)
_SEPARATORS = re.compile(r"[-_.]+")


class PluginState(str, Enum):
    """What is known of an entry."""

    AVAILABLE = "available"
    DISABLED = "disabled"
    UNSUPPORTED = "unsupported"
    CONFLICT = "conflict"
    LOADED = "loaded"
    BROKEN = "broken"


class PluginEntry(NamedTuple):
    """One entry point of one installed distribution.

    Attributes:
        group: Entry-point group.
        name: Name within the group.
        value: ``"module:attribute"`` it would load.
        distribution: Name of the distribution that declares it.
        version: Version of that distribution.
        import_name: Import name that the distribution states for its plugin API.
        api_version: Plugin API version it was written for; None when it states none.
        state: Whether it can be loaded, or why not.
        reason: The explanation of any other state than available or loaded.
        requires_core: Versions of the core that its metadata asks for, as in ``>=0.1,<0.2``.
    """

    group: str
    name: str
    value: str
    distribution: str
    version: str
    import_name: str | None
    api_version: str | None
    state: PluginState
    reason: str = ""
    requires_core: str = ""


def entry_points(group: str | None = None) -> tuple[PluginEntry, ...]:
    """Return the entries of one group, or of all, sorted by group, name and distribution."""
    switches = tuple(
        os.environ.get(name, "")
        for name in (DISABLE_VARIABLE, NO_AUTOLOAD_VARIABLE, ENABLE_VARIABLE)
    )
    groups = _grouped(*switches)
    if group is not None:
        return groups.get(group, ())
    return tuple(entry for name in sorted(groups) for entry in groups[name])


def names(group: str) -> tuple[str, ...]:
    """Return the names in a group that are not disabled, sorted, each once."""
    found = dict.fromkeys(
        entry.name for entry in entry_points(group) if entry.state is not PluginState.DISABLED
    )
    return tuple(found)


def refresh() -> None:
    """Forget what was read, so that the next question reads the metadata again."""
    importlib.invalidate_caches()
    _read_metadata.cache_clear()
    _grouped.cache_clear()


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """Return a distribution name in the normal form of packaging metadata."""
    return _SEPARATORS.sub("-", name.strip()).lower()


class _Raw(NamedTuple):
    group: str
    name: str
    value: str
    distribution: str
    version: str
    requires_core: str


@lru_cache(maxsize=1)
def _read_metadata() -> tuple[_Raw, ...]:
    """Read every entry of our groups once, with the distribution it belongs to."""
    found: list[_Raw] = []
    known: dict[int, tuple[str, str, str]] = {}
    for entry in _raw_entries():
        if not entry.group.startswith(PREFIX):
            continue
        distribution = entry.dist
        identity = known.get(id(distribution))
        if identity is None:
            identity = known[id(distribution)] = _identity(distribution)
        found.append(_Raw(entry.group, entry.name, entry.value, *identity))
    return tuple(found)


def _raw_entries() -> Iterable[Any]:
    import importlib_metadata

    try:
        return importlib_metadata.entry_points()
    except Exception:
        # One distribution with damaged metadata must not hide all others.
        return list(_entries_one_by_one())


def _entries_one_by_one() -> Iterator[Any]:
    import importlib_metadata

    seen: set[str] = set()
    for distribution in importlib_metadata.distributions():
        try:
            name = canonical(distribution.metadata["Name"])
            if name in seen:
                continue
            seen.add(name)
            entries = list(distribution.entry_points)
        except Exception as error:
            location = getattr(distribution, "_path", distribution.locate_file(""))
            warnings.warn(
                f"Skipped the plugins of the distribution {location}: its metadata cannot be "
                f"read ({type(error).__name__}: {error}). Reinstall it.",
                RuntimeWarning,
                stacklevel=2,
            )
            continue
        yield from entries


def _identity(distribution: Any) -> tuple[str, str, str]:
    """Read three header lines; a full parse of the metadata costs many times the listing."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    head, _, _ = text.partition("\n\n")
    header = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    needed = _CORE_REQUIREMENT.search(head)
    return (
        header.get("Name", "unknown").strip(),
        header.get("Version", "unknown").strip(),
        needed[1].strip(" ()") if needed else "",
    )


@lru_cache(maxsize=8)
def _grouped(disable: str, no_autoload: str, enable: str) -> dict[str, tuple[PluginEntry, ...]]:
    raw = _read_metadata()
    api: dict[str, _Raw] = {}
    for item in raw:
        if item.group == PLUGIN_API and not _is_supported(api.get(item.distribution)):
            api[item.distribution] = item
    groups: dict[str, list[PluginEntry]] = {}
    switches = _Switches(_split(disable), bool(no_autoload), _split(enable))
    for item in raw:
        entry = _describe(item, api.get(item.distribution), switches)
        groups.setdefault(item.group, []).append(entry)
    return {group: _ordered(group, entries) for group, entries in groups.items()}


class _Switches(NamedTuple):
    disabled: frozenset[str]
    no_autoload: bool
    enabled: frozenset[str]

    def reason(self, item: _Raw) -> str:
        if not self.disabled and not self.no_autoload:
            return ""
        both = {canonical(item.distribution), canonical(item.name)}
        if both & self.disabled:
            return f"disabled by {DISABLE_VARIABLE}"
        if self.no_autoload and not both & self.enabled:
            return f"disabled by {NO_AUTOLOAD_VARIABLE}; name it in {ENABLE_VARIABLE} to use it"
        return ""


def _split(value: str) -> frozenset[str]:
    return frozenset(canonical(part) for part in value.split(",") if part.strip())


def _describe(item: _Raw, api: _Raw | None, switches: _Switches) -> PluginEntry:
    state, reason = PluginState.AVAILABLE, switches.reason(item)
    if reason:
        state = PluginState.DISABLED
    elif not _is_supported(api):
        state, reason = PluginState.UNSUPPORTED, _unsupported(item, api)
    return PluginEntry(
        group=item.group,
        name=item.name,
        value=item.value,
        distribution=item.distribution,
        version=item.version,
        import_name=api.value if api else None,
        api_version=api.name if api else None,
        state=state,
        reason=reason,
        requires_core=item.requires_core,
    )


def _is_supported(api: _Raw | None) -> bool:
    return api is not None and api.name in _SUPPORTED


def _unsupported(item: _Raw, api: _Raw | None) -> str:
    ours = ", ".join(_SUPPORTED)
    if api is None:
        return (
            f"{item.distribution} {item.version} states no plugin API version; this VoiceHub "
            f"supports {ours}. Its package must declare an entry point named "
            f"{_SUPPORTED[-1]} in the group {PLUGIN_API}."
        )
    return (
        f"{item.distribution} {item.version} was written for plugin API {api.name}; this VoiceHub "
        f"supports {ours}. Install versions of the two that match."
    )


def _ordered(group: str, entries: list[PluginEntry]) -> tuple[PluginEntry, ...]:
    entries.sort(key=lambda entry: (entry.name, canonical(entry.distribution)))
    if group == PLUGIN_API:  # Every distribution states its version under the same name.
        return tuple(entries)
    claims: dict[str, list[PluginEntry]] = {}
    for entry in entries:
        if entry.state is not PluginState.DISABLED:
            claims.setdefault(entry.name, []).append(entry)
    if len(claims) == len(entries):
        return tuple(entries)
    return tuple(_mark_conflict(entry, claims.get(entry.name, [])) for entry in entries)


def _mark_conflict(entry: PluginEntry, claims: list[PluginEntry]) -> PluginEntry:
    if len(claims) < 2 or entry.state is PluginState.DISABLED:
        return entry
    return entry._replace(state=PluginState.CONFLICT, reason=_conflict(entry, claims))


def _conflict(entry: PluginEntry, claims: list[PluginEntry]) -> str:
    owners = sorted({claim.distribution for claim in claims})
    if len(owners) == 1:
        return f"{owners[0]} declares {entry.name!r} in {entry.group} more than once"
    return (
        f"{' and '.join(owners)} both claim the name {entry.name!r} in {entry.group}. Uninstall "
        f"one, or disable it: {DISABLE_VARIABLE}={canonical(owners[-1])}"
    )
