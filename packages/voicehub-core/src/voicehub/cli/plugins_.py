"""``voicehub plugins``: what is installed beside the core, from metadata alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub.cli.tables import table

if TYPE_CHECKING:
    from voicehub.plugins.discovery import PluginEntry


def plugins(
    inspect: Annotated[
        bool, typer.Option("--inspect", help="Import every plugin, so that broken ones show.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """List the plugins: their names, where they come from and whether they work."""
    from voicehub.plugins.groups import PLUGIN_API
    from voicehub.plugins.loading import inspect as inspect_plugins

    entries = [
        entry
        for entry in inspect_plugins(load_them=inspect)
        # A version statement is no plugin; it shows where a distribution has one.
        if entry.group != PLUGIN_API
    ]
    rows = [
        (entry.group.removeprefix("voicehub."), entry.name, entry.distribution, entry.version,
         entry.state.value)
        for entry in entries
    ]  # fmt: skip
    lines = ["No plugins are installed."]
    if rows:
        lines = [table(("kind", "name", "distribution", "version", "state"), rows)]
    reasons = dict.fromkeys(entry.reason for entry in entries if entry.reason)
    lines += ["", *reasons] if reasons else []
    if not inspect and rows:
        lines.append("\nNothing was imported. --inspect imports each and shows broken ones.")
    result: dict[str, Any] = {"plugins": [_as_dict(entry) for entry in entries]}
    result["inspected"] = inspect
    finish(result, json_mode=json_, human="\n".join(lines))


def _as_dict(entry: PluginEntry) -> dict[str, Any]:
    return {
        "group": entry.group,
        "name": entry.name,
        "value": entry.value,
        "distribution": entry.distribution,
        "version": entry.version,
        "api_version": entry.api_version,
        "state": entry.state.value,
        "reason": entry.reason,
    }
