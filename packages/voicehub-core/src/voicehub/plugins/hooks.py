"""Hooks of plugins: light modules of the group ``voicehub.plugins``, called with pluggy.

A plugin writes::

    from voicehub.plugins.hooks import hookimpl

    @hookimpl
    def voicehub_callbacks(args): ...
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import pluggy

from voicehub.errors import PluginError
from voicehub.plugins import loading
from voicehub.plugins.groups import PLUGINS

PROJECT = "voicehub"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class HookSpecs:
    """The hooks there are."""

    @hookspec
    def voicehub_callbacks(self, args: Any) -> list[Any]:  # type: ignore[empty-body]
        """Return trainer callbacks to add to a run.

        Args:
            args: The run's TrainingArguments.
        """

    @hookspec
    def voicehub_checks(self) -> list[Any]:  # type: ignore[empty-body]
        """Return checks that ``voicehub doctor`` runs: callables without arguments."""


@lru_cache(maxsize=1)
def manager() -> pluggy.PluginManager:
    """Return the plugin manager; the first call loads the group ``voicehub.plugins``.

    A plugin that cannot be loaded is left out with a warning that names it.
    """
    plugins = pluggy.PluginManager(PROJECT)
    plugins.add_hookspecs(HookSpecs)
    for name in loading.names(PLUGINS):
        _add(plugins, name)
    return plugins


def register(plugin: object, name: str | None = None) -> str | None:
    """Register hook implementations for this process and return the name they got."""
    return manager().register(plugin, name=name)


def unregister(plugin: object) -> None:
    """Remove what ``register`` added."""
    manager().unregister(plugin)


def callbacks(args: Any) -> list[Any]:
    """Return the callbacks of all plugins for a run, in order of registration."""
    return _flat(manager().hook.voicehub_callbacks(args=args))


def checks() -> list[Any]:
    """Return the checks of all plugins."""
    return _flat(manager().hook.voicehub_checks())


def refresh() -> None:
    """Forget the manager, with everything registered on it."""
    manager.cache_clear()


def _add(plugins: pluggy.PluginManager, name: str) -> None:
    try:
        plugins.register(loading.load(PLUGINS, name), name=name)
        plugins.check_pending()
    except (PluginError, pluggy.PluginValidationError, ValueError) as error:
        if plugins.has_plugin(name):
            plugins.unregister(name=name)
        warnings.warn(f"Left out plugin {name!r}: {error}", RuntimeWarning, stacklevel=2)


def _flat(results: list[list[Any] | None]) -> list[Any]:
    # pluggy calls the newest plugin first.
    return [item for result in reversed(results) if result for item in result]
