"""``voicehub prefetch PRESET``: everything that a preset names, on this machine before it runs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub.cli.tables import table

if TYPE_CHECKING:
    from voicehub.cli.compose import Composition
    from voicehub.models.assets import Asset, AssetState

app = typer.Typer()
_NOT_GIVEN = "???"


@app.command()
def prefetch(
    preset: Annotated[str, typer.Argument(metavar="PRESET", help="As for `voicehub train`.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="As for `voicehub train`.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Fetch and verify all checkpoints and data that PRESET names, before workers start.

    Downloads go to the cache of huggingface_hub (HF_HUB_CACHE, or HF_HOME/hub): let all machines
    of a job share it. Processes that run this at once wait for each other. Local directories are
    verified. Settings that the preset leaves to you (data.train) may be left out.
    """
    from voicehub.cli.compose import compose_preset
    from voicehub.cli.logs import show_logs
    from voicehub_hf.hub.cache import cache_directory
    from voicehub_hf.hub.prefetch import prefetch as fetch
    from voicehub_hf.hub.prefetch import summary_state

    show_logs()
    assets = assets_of(compose_preset(preset, overrides or []))
    states = fetch(assets)
    complete = summary_state(states)
    result = {
        "assets": [state.as_dict() for state in states],
        "cache": str(cache_directory()),
        "bytes": sum(state.size for state in states),
    }
    finish(result, json_mode=json_, human=_text(preset, states, complete), ok=complete)


def assets_of(composition: Composition) -> list[Asset]:
    """What all stages of a preset name, each once."""
    from voicehub.cli.validate import validate_run, validate_stages
    from voicehub.models.assets import named_assets

    filled = _filled(composition)
    if filled.stages:
        configs = [config for _, config in validate_stages(filled)]
    else:
        configs = [validate_run(filled)[1]]
    found = [asset for config in configs for asset in named_assets(config)]
    return [asset for asset in dict.fromkeys(found) if asset.source != _NOT_GIVEN]


def _filled(composition: Composition) -> Composition:
    """The same with a mark in place of what is still to be given."""
    values: dict[str, Any] = copy.deepcopy(composition.values)
    for key in composition.missing:
        *sections, leaf = key.split(".")
        place = values
        for name in sections:
            place = place.setdefault(name, {})
        place[leaf] = _NOT_GIVEN
    stages = tuple(_filled(stage) for stage in composition.stages)
    return replace(composition, values=values, missing=(), stages=stages)


def _text(preset: str, states: Sequence[AssetState], complete: bool) -> str:
    if not states:
        return f"'{preset}' names nothing outside itself."
    rows = [
        (
            state.asset.setting,
            state.asset.source,
            state.state,
            str(len(state.files) or ""),
            _megabytes(state.size),
            (state.commit or "")[:12],
        )
        for state in states
    ]
    lines = [table(("setting", "names", "state", "files", "MB", "commit"), rows)]
    for state in states:
        if state.path is not None:
            lines.append(f"{state.asset.source}: {state.path}")
        lines += [f"  {name}  {size:,} bytes" for name, size in state.files.items()]
    notes = [f"{s.asset.setting} = {s.asset.source}: {s.detail}" for s in states if s.detail]
    missing = sum(state.state != "present" for state in states)
    end = "All of it is here." if complete else f"Missing: {missing} of {len(states)}."
    return "\n".join([*lines, *notes, end])


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}" if size else ""
