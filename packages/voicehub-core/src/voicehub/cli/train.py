"""``voicehub train``: compose a preset and run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish

if TYPE_CHECKING:
    from voicehub.cli.compose import Composition


def train(
    preset: Annotated[
        str,
        typer.Argument(metavar="PRESET", help="FAMILY/NAME, a file of ./configs, or a .yaml."),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings in Hydra's syntax: training.learning_rate=1e-3, data=my_corpus, "
            "+experiments=my_run.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved configuration and stop.")
    ] = False,
    print_launch: Annotated[
        bool,
        typer.Option(
            "--print-launch",
            help="Check that everything the configuration names is here, print the torchrun "
            "command for --nproc and --nnodes, and stop.",
        ),
    ] = False,
    nproc: Annotated[int, typer.Option(min=1, help="With --print-launch.")] = 1,
    nnodes: Annotated[int, typer.Option(min=1, help="With --print-launch.")] = 1,
    rdzv_endpoint: Annotated[
        str | None, typer.Option(help="With --print-launch: HOST:PORT where nodes meet.")
    ] = None,
    smoke: Annotated[
        bool,
        typer.Option(
            "--smoke",
            help="Train, save, resume, evaluate, sample, export and load again: a few updates in "
            "tiny shapes on a CPU, in a directory that is deleted afterwards.",
        ),
    ] = False,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate/--no-estimate",
            help="Tell what memory the run needs beside what its device has, once that is worked "
            "out beside the run, which it does not change or wait for.",
        ),
    ] = True,
    json_: JsonOption = False,
) -> None:
    """Train PRESET. `voicehub presets` lists what there is."""
    from voicehub.cli.compose import compose_preset
    from voicehub.cli.launch import SMOKE, finish_with_command, settled
    from voicehub.cli.launch_plan import LaunchPlan
    from voicehub.cli.run_record import config_as_yaml, hide_credentials
    from voicehub.cli.validate import validate_run
    from voicehub.models.assets import locate_assets, named_assets, require_assets

    if print_launch:
        options = [SMOKE] * smoke + ["--no-estimate"] * (not estimate)
        words = ("train", preset, *(overrides or []), *options)
        plan = settled(
            LaunchPlan(words, nproc, nnodes, rdzv_endpoint), check_here=True, remote_too=True
        )
        finish_with_command(plan, json_mode=json_)
        return
    if nproc > 1 or nnodes > 1 or rdzv_endpoint is not None:
        raise UsageError(
            "--nproc, --nnodes and --rdzv-endpoint belong to --print-launch. To run on several "
            "processes: voicehub launch --nproc N -- train PRESET."
        )
    if smoke:
        from voicehub.cli.smoke import run_smoke

        done = run_smoke(preset, overrides or [], json_mode=json_)
        finish({"smoke": done.as_dict()}, json_mode=json_, human=f"\n{done.text()}")
        return
    composition = compose_preset(preset, overrides or [])
    if composition.stages:
        _train_chain(composition, dry_run=dry_run, estimates=estimate, json_mode=json_)
        return
    spec, config = validate_run(composition)
    values = hide_credentials(config.model_dump(mode="json"))
    if dry_run:
        text = config_as_yaml(values)
        finish({"config": values}, json_mode=json_, human=text.rstrip())
        return
    from voicehub.cli.run_request import RunRequest
    from voicehub.cli.start_estimate import StartEstimates
    from voicehub.cli.training_run import run_training

    require_assets(locate_assets(named_assets(config)))
    request = RunRequest(composition, spec, config, values, json_)
    with StartEstimates([request] if estimate else []) as estimates:
        summary = run_training(request, estimates if estimate else None)
    finish(
        {"summary": summary.as_dict()},
        json_mode=json_,
        human=f"\n{summary.text()}",
        ok=not summary.failures,
    )


def _train_chain(
    composition: Composition, *, dry_run: bool, estimates: bool, json_mode: bool
) -> None:
    from voicehub.cli.chain import plan_chain, run_chain

    chain = plan_chain(composition, json_mode=json_mode)
    if dry_run:
        configs = {
            name: stage.values for name, stage in zip(chain.names, chain.stages, strict=True)
        }
        finish({"stages": configs}, json_mode=json_mode, human=chain.yaml.rstrip())
        return
    summary = run_chain(chain, estimates=estimates)
    last = None if summary.last is None else summary.last.as_dict()
    result = {"summary": last, "chain": summary.as_dict()}
    finish(result, json_mode=json_mode, human=f"\n{summary.text()}")
