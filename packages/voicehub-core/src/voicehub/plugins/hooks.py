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

    @hookspec
    def voicehub_locate_assets(self, assets: Any) -> list[Any]:  # type: ignore[empty-body]
        """Return where checkpoints are, without fetching any of them.

        Args:
            assets: ``voicehub.models.assets.Asset`` of the kind ``checkpoint``.

        Returns:
            An ``AssetState`` for each one that the plugin knows about.
        """

    @hookspec
    def voicehub_size_assets(self, states: Any) -> list[Any]:  # type: ignore[empty-body]
        """Return what has to be fetched with the sizes of its files, without fetching any.

        Args:
            states: ``AssetState`` of everything that a configuration names.

        Returns:
            New states of those that the plugin knows more about.
        """

    @hookspec
    def voicehub_without_weights(self) -> list[Any]:  # type: ignore[empty-body]
        """Return context managers in which checkpoints are built from their configuration alone.

        Plans enter them: shapes and dtypes are those of a checkpoint whose weights are never
        read or fetched.
        """


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
    return _collected("voicehub_callbacks", args=args)


def checks() -> list[Any]:
    """Return the checks of all plugins."""
    return _collected("voicehub_checks")


def located_assets(assets: Any) -> list[Any]:
    """Return what the plugins know about where checkpoints are."""
    return _collected("voicehub_locate_assets", assets=assets)


def sized_assets(states: Any) -> list[Any]:
    """Return what the plugins know about the sizes of what has to be fetched."""
    return _collected("voicehub_size_assets", states=states)


def without_weights() -> list[Any]:
    """Return what the plugins have against reading weights."""
    return _collected("voicehub_without_weights")


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


def _collected(hook: str, **arguments: Any) -> list[Any]:
    """Call one hook plugin by plugin, in order of registration, and join what they return.

    A plugin whose hook raises is left out with a warning that names it.
    """
    plugins = manager()
    everyone = plugins.get_plugins()
    results: list[Any] = []
    for implementation in getattr(plugins.hook, hook).get_hookimpls():
        others = everyone - {implementation.plugin}
        try:
            # pluggy has the newest plugin first, and one plugin has each hook once.
            found = plugins.subset_hook_caller(hook, others)(**arguments)
            results += [item for result in found if result for item in result]
        except Exception as error:
            warnings.warn(
                f"Left out hook {hook} of plugin {implementation.plugin_name!r}: it failed with "
                f"{type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=3,
            )
    return results
