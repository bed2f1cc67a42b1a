"""Find plugins from installed metadata alone; nothing of a plugin is imported here.

The metadata is read once per process. ``refresh()`` forgets it, for code that installs
packages or changes ``sys.path``.

Environment:
    VOICEHUB_DISABLE_PLUGINS: comma-separated distribution or entry names to leave out.
    VOICEHUB_DISABLE_PLUGIN_AUTOLOAD: any non-empty value leaves out every plugin ...
    VOICEHUB_PLUGINS: ... but these (distribution or entry names), as pytest's ``-p`` does.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from voicehub.plugins.groups import PLUGIN_API, PREFIX, SUPPORTED_API_VERSIONS

DISABLE_VARIABLE = "VOICEHUB_DISABLE_PLUGINS"
NO_AUTOLOAD_VARIABLE = "VOICEHUB_DISABLE_PLUGIN_AUTOLOAD"
ENABLE_VARIABLE = "VOICEHUB_PLUGINS"

_SEPARATORS = re.compile(r"[-_.]+")


class PluginState(str, Enum):
    """What is known of an entry."""

    AVAILABLE = "available"
    DISABLED = "disabled"
    UNSUPPORTED = "unsupported"
    CONFLICT = "conflict"
    LOADED = "loaded"
    BROKEN = "broken"


@dataclass(frozen=True)
class PluginEntry:
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
    _read_metadata.cache_clear()
    _grouped.cache_clear()


def canonical(name: str) -> str:
    """Return a distribution name in the normal form of packaging metadata."""
    return _SEPARATORS.sub("-", name.strip()).lower()


@dataclass(frozen=True)
class _Raw:
    group: str
    name: str
    value: str
    distribution: str
    version: str


@lru_cache(maxsize=1)
def _read_metadata() -> tuple[_Raw, ...]:
    """Read every entry of our groups once, with the distribution it belongs to."""
    found: list[_Raw] = []
    known: dict[int, tuple[str, str]] = {}
    for entry in _raw_entries():
        if not entry.group.startswith(PREFIX):
            continue
        distribution = entry.dist
        identity = known.get(id(distribution))
        if identity is None:
            identity = known[id(distribution)] = _name_and_version(distribution)
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
            location = distribution.locate_file("")
            warnings.warn(
                f"Skipped the plugins of a distribution in {location}: its metadata cannot be "
                f"read ({type(error).__name__}: {error}). Reinstall it.",
                RuntimeWarning,
                stacklevel=2,
            )
            continue
        yield from entries


def _name_and_version(distribution: Any) -> tuple[str, str]:
    """Read two header lines; a full parse of the metadata costs many times the listing."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    header: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            break
        key, separator, value = line.partition(":")
        if separator and key in ("Name", "Version"):
            header[key] = value.strip()
            if len(header) == 2:
                break
    return header.get("Name", "unknown"), header.get("Version", "unknown")


@lru_cache(maxsize=8)
def _grouped(disable: str, no_autoload: str, enable: str) -> dict[str, tuple[PluginEntry, ...]]:
    raw = _read_metadata()
    stated: dict[str, list[_Raw]] = {}
    for item in raw:
        if item.group == PLUGIN_API:
            stated.setdefault(item.distribution, []).append(item)
    groups: dict[str, list[PluginEntry]] = {}
    switches = _Switches(_split(disable), bool(no_autoload), _split(enable))
    for item in raw:
        entry = _describe(item, stated.get(item.distribution, []), switches)
        groups.setdefault(item.group, []).append(entry)
    return {group: _ordered(group, entries) for group, entries in groups.items()}


@dataclass(frozen=True)
class _Switches:
    disabled: frozenset[str]
    no_autoload: bool
    enabled: frozenset[str]

    def reason(self, item: _Raw) -> str:
        both = {canonical(item.distribution), canonical(item.name)}
        if both & self.disabled:
            return f"disabled by {DISABLE_VARIABLE}"
        if self.no_autoload and not both & self.enabled:
            return f"disabled by {NO_AUTOLOAD_VARIABLE}; name it in {ENABLE_VARIABLE} to use it"
        return ""


def _split(value: str) -> frozenset[str]:
    return frozenset(canonical(part) for part in value.split(",") if part.strip())


def _describe(item: _Raw, stated: list[_Raw], switches: _Switches) -> PluginEntry:
    api = _best_api(stated)
    state, reason = PluginState.AVAILABLE, switches.reason(item)
    if reason:
        state = PluginState.DISABLED
    elif api is None or _version_number(api.name) not in SUPPORTED_API_VERSIONS:
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
    )


def _best_api(stated: list[_Raw]) -> _Raw | None:
    """The supported version among those a distribution states, else the first of them."""
    for item in stated:
        if _version_number(item.name) in SUPPORTED_API_VERSIONS:
            return item
    return stated[0] if stated else None


def _version_number(name: str) -> int | None:
    match = re.fullmatch(r"v(\d+)", name)
    return int(match[1]) if match else None


def _unsupported(item: _Raw, api: _Raw | None) -> str:
    ours = ", ".join(f"v{number}" for number in SUPPORTED_API_VERSIONS)
    if api is None:
        return (
            f"{item.distribution} {item.version} states no plugin API version; this VoiceHub "
            f"supports {ours}. Its package must declare an entry point named "
            f"v{SUPPORTED_API_VERSIONS[-1]} in the group {PLUGIN_API}."
        )
    return (
        f"{item.distribution} {item.version} was written for plugin API {api.name}; this VoiceHub "
        f"supports {ours}. Install versions of the two that match."
    )


def _ordered(group: str, entries: list[PluginEntry]) -> tuple[PluginEntry, ...]:
    entries = sorted(entries, key=lambda entry: (entry.name, canonical(entry.distribution)))
    if group == PLUGIN_API:  # Every distribution states its version under the same name.
        return tuple(entries)
    claims: dict[str, list[PluginEntry]] = {}
    for entry in entries:
        if entry.state is not PluginState.DISABLED:
            claims.setdefault(entry.name, []).append(entry)
    return tuple(_mark_conflict(entry, claims.get(entry.name, [])) for entry in entries)


def _mark_conflict(entry: PluginEntry, claims: list[PluginEntry]) -> PluginEntry:
    if len(claims) < 2 or entry.state is PluginState.DISABLED:
        return entry
    from dataclasses import replace

    return replace(entry, state=PluginState.CONFLICT, reason=_conflict(entry, claims))


def _conflict(entry: PluginEntry, claims: list[PluginEntry]) -> str:
    owners = sorted({claim.distribution for claim in claims})
    if len(owners) == 1:
        return f"{owners[0]} declares {entry.name!r} in {entry.group} more than once"
    return (
        f"{' and '.join(owners)} both claim the name {entry.name!r} in {entry.group}. Uninstall "
        f"one, or disable it: {DISABLE_VARIABLE}={canonical(owners[-1])}"
    )
