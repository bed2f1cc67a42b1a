"""Providers by name: ours, and those of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voicehub.cli.output import UsageError
from voicehub.plugins import loading
from voicehub.plugins.groups import REMOTE_PROVIDERS
from voicehub.suggest import did_you_mean
from voicehub_remote.providers.contract import Provider

_OURS = {
    "command": "voicehub_remote.providers.command:CommandProvider",
    "runpod": "voicehub_remote.providers.runpod:RunPodProvider",
}


def provider_names() -> list[str]:
    """Names that ``--provider`` takes."""
    return sorted({*_OURS, *loading.names(REMOTE_PROVIDERS)})


def make_provider(name: str, settings: Mapping[str, str]) -> Provider:
    """The provider of that name with its settings.

    Raises:
        UsageError: there is none, or it does not know a setting.
        PluginError: it fails to import.
    """
    others = loading.names(REMOTE_PROVIDERS)
    if name in _OURS and name in others:
        raise UsageError(
            f"--provider {name}: another package claims this name, which is ours "
            "(`voicehub plugins` shows whose). VOICEHUB_DISABLE_PLUGINS leaves it out."
        )
    if name in _OURS:
        factory: Any = loading.resolve_reference(_OURS[name], what=f"provider {name!r}")
    elif name in others:
        factory = loading.load(REMOTE_PROVIDERS, name)
    else:
        known = provider_names()
        raise UsageError(
            f"--provider {name}: there is none of that name, only {', '.join(known)}."
            f"{did_you_mean(name, known)} Other packages add some: docs/plugins.md."
        )
    provider: Provider = factory(settings)
    return provider
