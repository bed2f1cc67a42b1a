"""Providers by name: entry points of ``voicehub.remote_providers``, ours as other packages'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voicehub.cli.output import UsageError
from voicehub.plugins import loading
from voicehub.plugins.groups import REMOTE_PROVIDERS
from voicehub.suggest import did_you_mean
from voicehub_remote.providers.contract import Provider


def make_provider(name: str, settings: Mapping[str, str]) -> Provider:
    """The provider of that name with its settings.

    Raises:
        UsageError: there is none, or it does not know a setting.
        PluginError: two packages claim the name, or it fails to import.
    """
    known = loading.names(REMOTE_PROVIDERS)
    if name not in known:
        raise UsageError(
            f"--provider {name}: there is none of that name, only {', '.join(known)}."
            f"{did_you_mean(name, known)} Other packages add some: docs/plugins.md."
        )
    factory: Any = loading.load(REMOTE_PROVIDERS, name)
    provider: Provider = factory(settings)
    return provider
