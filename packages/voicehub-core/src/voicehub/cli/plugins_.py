"""``voicehub plugins``: what is installed beside the core, from metadata alone or inspected."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub.cli.tables import table

if TYPE_CHECKING:
    from voicehub.plugins.discovery import PluginEntry
    from voicehub.plugins.inspection import Inspection

SLOW = 1.0


def plugins(
    inspect: Annotated[
        bool, typer.Option("--inspect", help="Import every plugin, so that broken ones show.")
    ] = False,
    losses: Annotated[
        bool, typer.Option("--losses", help="Import the losses: which kernel is live, and why.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """List the plugins: their names, where they come from and whether they work."""
    from voicehub.plugins.inspection import Inspection, inspect_each

    if losses:
        _list_losses(json_)
        return
    found = inspect_each(_import_torch) if inspect else [Inspection(entry) for entry in _known()]
    lines = ["No plugins are installed."]
    if found:
        lines = [_inspected_table(found) if inspect else _plain_table(found)]
    reasons = dict.fromkeys(item.entry.reason for item in found if item.entry.reason)
    remarks = [remark for item in found for remark in item.remarks]
    for block in (list(reasons), remarks):
        lines += ["", *block] if block else []
    if not inspect and found:
        lines.append("\nNothing was imported. --inspect imports each and shows broken ones.")
    result: dict[str, Any] = {"plugins": [_as_dict(item) for item in found]}
    result["inspected"] = inspect
    finish(result, json_mode=json_, human="\n".join(lines))


def _list_losses(json_mode: bool) -> None:
    """Every registered loss: its distribution, and on each device the live path and why."""
    from voicehub.plugins.groups import LOSSES
    from voicehub.plugins.inspection import inspect_each

    with warnings.catch_warnings():  # of a slower path: the table says it
        warnings.simplefilter("ignore", RuntimeWarning)
        found = inspect_each(_import_torch, groups=(LOSSES,))
    rows = [row for item in found for row in _loss_rows(item)]
    human = table(("loss", "distribution", "version", "device", "kernel", "why"), rows)
    finish(
        {"losses": [_as_dict(item) for item in found]},
        json_mode=json_mode,
        human=human if rows else "No losses are installed.",
    )


def _loss_rows(item: Inspection) -> list[tuple[str, ...]]:
    entry = item.entry
    owner = (entry.name, entry.distribution, entry.version)
    if entry.reason:
        return [(*owner, "", entry.state.value, entry.reason)]
    selections = item.details.get("selections")
    if selections is None:
        kernel, _, why = str(item.details.get("kernel", "does not say")).partition(": ")
        return [(*owner, "", kernel, why)]
    return [(*owner, one["device"], one["path"], one["reason"]) for one in selections]


def _import_torch() -> None:
    """Nearly every plugin does so: none shall be billed for it."""
    # Where torch itself does not import, the plugins that need it say why.
    with contextlib.suppress(Exception):
        import torch  # noqa: F401


def _known() -> list[PluginEntry]:
    from voicehub.plugins.groups import PLUGIN_API
    from voicehub.plugins.loading import inspect

    # A version statement is no plugin; it shows where a distribution has one.
    return [entry for entry in inspect() if entry.group != PLUGIN_API]


def _plain_table(found: list[Inspection]) -> str:
    return table(
        ("kind", "name", "distribution", "version", "state"), [_cells(item.entry) for item in found]
    )


def _inspected_table(found: list[Inspection]) -> str:
    rows = [(*_cells(item.entry), _seconds(item.seconds), _about(item)) for item in found]
    headers = ("kind", "name", "distribution", "version", "state", "import", "about")
    return table(headers, rows)


def _cells(entry: PluginEntry) -> tuple[str, ...]:
    kind = entry.group.removeprefix("voicehub.")
    return (kind, entry.name, entry.distribution, entry.version, entry.state.value)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.2f} s slow" if seconds >= SLOW else f"{seconds:.2f} s"


def _about(item: Inspection) -> str:
    details = item.details
    if "support" in details:
        return f"{details['task']}, {details['support']}, phases {', '.join(details['phases'])}"
    return f"kernel {details['kernel']}" if "kernel" in details else ""


def _as_dict(item: Inspection) -> dict[str, Any]:
    entry = item.entry
    return {
        "group": entry.group,
        "name": entry.name,
        "value": entry.value,
        "distribution": entry.distribution,
        "version": entry.version,
        "api_version": entry.api_version,
        "state": entry.state.value,
        "reason": entry.reason,
        "import_seconds": item.seconds,
        "details": item.details,
        "remarks": list(item.remarks),
    }
