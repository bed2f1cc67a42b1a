"""``voicehub train``: compose a preset and run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish
from voicehub.cli.train_options import (
    DryRunOption,
    EstimateOption,
    OverridesArgument,
    PresetArgument,
    PrintedEndpointOption,
    PrintedNodesOption,
    PrintedProcessesOption,
    PrintLaunchOption,
    SmokeOption,
)

if TYPE_CHECKING:
    from voicehub.cli.compose import Composition


def train(
    preset: PresetArgument,
    overrides: OverridesArgument = None,
    dry_run: DryRunOption = False,
    smoke: SmokeOption = False,
    estimate: EstimateOption = True,
    print_launch: PrintLaunchOption = False,
    nproc: PrintedProcessesOption = 1,
    nnodes: PrintedNodesOption = 1,
    rdzv_endpoint: PrintedEndpointOption = None,
    json_: JsonOption = False,
) -> None:
    """Train PRESET. `voicehub presets` lists what there is."""
    from voicehub.cli.compose import compose_preset
    from voicehub.cli.launch import SMOKE, finish_with_command, settled
    from voicehub.cli.launch_plan import LaunchPlan

    if print_launch:
        options = [SMOKE] * smoke + ["--no-estimate"] * (not estimate)
        words = ("train", preset, *(overrides or []), *options)
        plan = LaunchPlan(words, nproc, nnodes, rdzv_endpoint)
        finish_with_command(settled(plan, check_here=True, remote_too=True), json_mode=json_)
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
    train_composition = _train_chain if composition.stages else _train_once
    train_composition(composition, dry_run=dry_run, estimates=estimate, json_mode=json_)


def _train_once(
    composition: Composition, *, dry_run: bool, estimates: bool, json_mode: bool
) -> None:
    from voicehub.cli.run_record import config_as_yaml, hide_credentials
    from voicehub.cli.validate import check_named_parts, validate_run

    spec, config = validate_run(composition)
    check_named_parts(config)
    values = hide_credentials(config.model_dump(mode="json"))
    if dry_run:
        text = config_as_yaml(values)
        finish({"config": values}, json_mode=json_mode, human=text.rstrip())
        return
    from voicehub.cli.run_request import RunRequest
    from voicehub.cli.start_estimate import StartEstimates
    from voicehub.cli.training_run import run_training
    from voicehub.models.assets import locate_assets, named_assets, require_assets

    require_assets(locate_assets(named_assets(config)))
    request = RunRequest(composition, spec, config, values, json_mode)
    with StartEstimates([request] if estimates else []) as started:
        summary = run_training(request, started if estimates else None)
    finish(
        {"summary": summary.as_dict()},
        json_mode=json_mode,
        human=f"\n{summary.text()}",
        ok=not summary.failures,
    )


def _train_chain(
    composition: Composition, *, dry_run: bool, estimates: bool, json_mode: bool
) -> None:
    from voicehub.cli.chain import plan_chain, run_chain
    from voicehub.cli.validate import check_named_parts

    chain = plan_chain(composition, json_mode=json_mode)
    for stage in chain.stages:
        check_named_parts(stage.config)
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
