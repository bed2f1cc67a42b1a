"""``voicehub presets``: what can be trained by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub.cli.preset_files import Preset, families, family_presets, user_presets
from voicehub.cli.tables import table
from voicehub.errors import PluginError


def presets(
    family: Annotated[
        str | None, typer.Argument(help="Only this family (default: all, and ./configs).")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """List the presets of the installed families and of ./configs."""
    found: list[Preset] = []
    broken: dict[str, str] = {}
    for name in families():
        if family in (None, name):
            try:
                found += family_presets(name)
            except PluginError as error:  # one broken plugin must not hide the others
                broken[name] = str(error)
    if family is None:
        found += user_presets(Path.cwd())
    elif family not in families():
        from voicehub.cli.output import UsageError
        from voicehub.suggest import did_you_mean

        known = ", ".join(families()) or "none installed"
        raise UsageError(
            f"There is no family '{family}'.{did_you_mean(family, families())} "
            f"Families with presets: {known}."
        )
    rows = [(preset.name, preset.summary()) for preset in found]
    lines = [table(("preset", "what it is"), rows) if rows else "No presets are installed."]
    lines += [f"broken: {reason}" for reason in broken.values()]
    if rows:
        lines.append(f"\nTrain one: voicehub train {rows[0][0]} KEY=VALUE ...")
        lines.append("Settings that a preset requires, mostly data.train, are named by --dry-run.")
    result = {
        "presets": [
            {"name": preset.name, "summary": preset.summary(), "path": preset.path}
            for preset in found
        ],
        "broken": broken,
    }
    finish(result, json_mode=json_, human="\n".join(lines))
