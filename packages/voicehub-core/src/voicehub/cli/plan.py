"""``voicehub plan``: what a run needs, before anything is rented or fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

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
    if composition.stages:
        configs = [config for _, config in validate_stages(composition)]
    else:
        configs = [validate_run(composition)[1]]
    rehearsed = compose_preset(preset, [*words, *_bounds(configs)])
    parts = rehearsed.stages or (rehearsed,)
    assets = [_assets(config) for config in configs]
    estimates = [
        _estimate(part, config, named, nproc, chosen)
        for part, config, named in zip(parts, configs, assets, strict=True)
    ]
    result = {"plan": [{**e.as_dict(), "name": e.name} for e in estimates]}
    result["assets"] = [state.as_dict() for state in assets[0]]
    text = "\n\n".join([_assets_text(assets[0]), *map(_text, estimates)]).strip()
    finish(result, json_mode=json_, human=text)
    if not all(estimate.fits for estimate in estimates):
        raise typer.Exit(1)


def _bounds(configs: Sequence[RunConfig]) -> list[str]:
    """Where the rehearsal differs from the run: one process, on the CPU."""
    bounds = [
        "training.use_cpu=true",
        "training.strategy=torch",
        "training.dataloader_num_workers=0",
        "training.report_to=[]",
        "training.push_to_hub=false",
        "training.torch_compile=false",
    ]
    if any(config.training.fp16 for config in configs):
        # As many bytes, and the CPU computes in it; the scaler holds one number.
        bounds += ["training.fp16=false", "training.bf16=true"]
    return bounds


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
    real: RunConfig,
    assets: Sequence[AssetState],
    processes: int,
    card: Card | None,
) -> Estimate:
    from voicehub.cli.run_record import hide_credentials
    from voicehub.cli.validate import validate_run
    from voicehub.planning.estimate import estimate

    args = real.training
    if processes > 1 and args.strategy == "torch":
        args = replace(args, strategy="ddp")  # as `voicehub launch` does
    spec, config = validate_run(composition)
    return estimate(
        composition.stage or real.name,
        _trainer_factory(composition, spec, config),
        args,
        hide_credentials(real.model_dump(mode="json")),
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
