"""``voicehub plan``: what a run needs, before anything is rented or fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub.cli.tables import duration, table

if TYPE_CHECKING:
    from voicehub.cli.compose import Composition
    from voicehub.models.assets import AssetState
    from voicehub.planning.cards import Card
    from voicehub.planning.estimate import Estimate
    from voicehub.specs.model import ModelTrainingSpec
    from voicehub.strategies.base import TrainingStrategy
    from voicehub.trainer.arguments import TrainingArguments
    from voicehub.trainer.run_config import RunConfig
    from voicehub.trainer.trainer import Trainer


def plan(
    preset: Annotated[
        str,
        typer.Argument(metavar="PRESET", help="FAMILY/NAME, a file of ./configs, or a .yaml."),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="As for `voicehub train`.")
    ] = None,
    nproc: Annotated[int, typer.Option(min=1, help="Cards that the run is for.")] = 1,
    card: Annotated[
        str | None, typer.Option(help="Judge by this card; the smallest that fits by default.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Estimate memory, disk and time of a run; nothing is trained, and no weights are read.

    Exit code 1 where it does not fit on the card.
    """
    from voicehub.cli.compose import compose_preset
    from voicehub.cli.validate import validate_run, validate_stages
    from voicehub.planning.cards import card_named

    chosen = None if card is None else card_named(card)
    words = list(overrides or [])
    composition = compose_preset(preset, words)
    # What is refused in training is refused here, in the words of the real configuration.
    chain = composition.stages
    validated = validate_stages(composition) if chain else [validate_run(composition)]
    assets = [_assets(config) for _, config in validated]
    everything = list({state.asset: state for states in assets for state in states}.values())
    result: dict[str, Any] = {"assets": [state.as_dict() for state in everything]}
    if any(state.asset.kind == "dataset" and state.state == "remote" for state in everything):
        text = _without_data(preset, everything, result)
        finish({"plan": [], **result}, json_mode=json_, human=text, ok=False)
    parts = chain or (composition,)
    estimates = [
        _estimate(part, spec, config, named, nproc, chosen)
        for part, (spec, config), named in zip(parts, validated, assets, strict=True)
    ]
    result["plan"] = [{**e.as_dict(), "name": e.name} for e in estimates]
    text = "\n\n".join([_assets_text(everything), *map(_text, estimates)]).strip()
    finish(result, json_mode=json_, human=text, ok=all(estimate.fits for estimate in estimates))


def _without_data(preset: str, states: Sequence[AssetState], result: dict[str, Any]) -> str:
    """What can be said before the data are here; fetching them would be no plan."""
    from voicehub.planning.cards import gib
    from voicehub.planning.estimate import to_fetch

    downloads, data = to_fetch(states)
    result["disk"] = {"downloads": downloads, "data": data, "total": downloads + data}
    known = f"checkpoints {gib(downloads)}, data with room to unpack them {gib(data)}"
    return (
        f"{_assets_text(states)}\n\n  disk: {gib(downloads + data)} ({known})\n"
        "  memory and time: not known before the data are here, since their lengths decide the "
        f"batches. Fetch them with: voicehub prefetch {preset}"
    )


def _assets(config: RunConfig) -> list[AssetState]:
    from voicehub.models.assets import locate_assets, named_assets, require_assets
    from voicehub.plugins import hooks

    located = locate_assets(named_assets(config))
    sized = {state.asset: state for state in hooks.sized_assets(located)}
    states = [sized.get(state.asset, state) for state in located]
    require_assets(states)
    return states


def _estimate(
    composition: Composition,
    spec: ModelTrainingSpec,
    config: RunConfig,
    assets: Sequence[AssetState],
    processes: int,
    card: Card | None,
) -> Estimate:
    from voicehub.cli.run_record import hide_credentials
    from voicehub.planning.estimate import estimate
    from voicehub.planning.rehearsal import rehearsed_arguments

    args = config.training
    if processes > 1 and args.strategy == "torch":
        args = replace(args, strategy="ddp")  # as `voicehub launch` does
    rehearsed = config.model_copy(update={"training": rehearsed_arguments(config.training)})
    return estimate(
        composition.stage or config.name,
        _trainer_factory(composition, spec, rehearsed),
        args,
        hide_credentials(config.model_dump(mode="json")),
        assets,
        processes=processes,
        card=card,
    )


def _trainer_factory(
    composition: Composition, spec: ModelTrainingSpec, config: RunConfig
) -> Callable[[Callable[[TrainingArguments], TrainingStrategy]], Trainer]:
    from voicehub.cli.run_request import RunRequest
    from voicehub.cli.training_run import build_experiment, build_trainer

    def make(strategy: Callable[[TrainingArguments], TrainingStrategy]) -> Trainer:
        values = config.model_dump(mode="json")
        request = RunRequest(composition, spec, config, values, json_mode=True)
        experiment = build_experiment(request)
        return build_trainer(request, experiment, [], strategy(config.training))

    return make


# -- for people ------------------------------------------------------------------------------


def _assets_text(states: Sequence[AssetState]) -> str:
    from voicehub.planning.cards import gib

    rows = [
        (
            state.asset.setting,
            state.asset.source,
            state.state,
            gib(state.size) if state.size else "",
        )
        for state in states
        if state.asset.kind != "file"
    ]
    return table(("what it names", "source", "state", "size"), rows) if rows else ""


def _text(found: Estimate) -> str:
    from voicehub.planning.cards import gib

    parameters = found.rehearsal.parameters
    dtypes = ", ".join(f"{name} {gib(n)}" for name, n in parameters.bytes_by_dtype.items())
    lines = [
        f"{found.name}: {parameters.total:,} parameters, {parameters.trainable:,} train ({dtypes})",
        "",
        table(
            ("memory of each process", "bytes"),
            [
                *((kind, gib(size)) for kind, size in found.memory.items()),
                ("peak", gib(found.peak)),
            ],
            indent="  ",
        ),
        "",
        f"  worst batch: {', '.join(found.rehearsal.batch[:4])}"
        f"{' …' if len(found.rehearsal.batch) > 4 else ''} ({len(found.rehearsal.batch)} samples)",
        f"  with context and fragmentation: {gib(found.card_bytes)} on each of {found.processes}"
        if found.processes > 1
        else f"  with context and fragmentation: {gib(found.card_bytes)}",
        _card_text(found),
        _time_text(found),
        f"  disk: {gib(found.disk.total)} ("
        + ", ".join(f"{k} {gib(v)}" for k, v in asdict(found.disk).items() if v)
        + ")",
    ]
    if found.advice:
        lines += ["", "  To make it fit, the cheapest first:"]
        lines += [f"    {n}. {text}" for n, text in enumerate(found.advice, 1)]
    return "\n".join(line for line in lines if line is not None)


def _card_text(found: Estimate) -> str:
    card = found.card
    if card is None:
        return "  card: none of the table holds it"
    if found.fits:
        return f"  card: {card.name} ({card.gib:g} GiB) holds it"
    return f"  card: {card.name} ({card.gib:g} GiB) does not hold it"


def _time_text(found: Estimate) -> str:
    if found.epoch_seconds is None or found.card is None:
        return "  time: not known"
    low, high = (duration(max(1.0, seconds)) for seconds in found.epoch_seconds)
    updates = found.rehearsal.updates_per_epoch
    return f"  an epoch of {updates:,} updates on {found.card.name}: {low} to {high}"
