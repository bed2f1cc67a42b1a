"""``voicehub launch``: one training run on several processes, here or as a job file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from voicehub.cli.launch_options import (
    CpusOption,
    DirectoryOption,
    EndpointOption,
    EnvironmentOption,
    GpusOption,
    MemoryOption,
    MinutesOption,
    NameOption,
    NodesOption,
    OutputOption,
    PartitionOption,
    PrintOption,
    ProcessesOption,
    RestartsOption,
    RunIdOption,
    SetupOption,
    ToOption,
)
from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish, say

if TYPE_CHECKING:
    from pathlib import Path

    from voicehub.cli.launch_files import JobRequest
    from voicehub.cli.launch_plan import LaunchPlan

SMOKE = "--smoke"
_TARGETS = ("sbatch", "skypilot", "dstack")


def launch(
    words: Annotated[
        list[str], typer.Argument(metavar="-- train PRESET [KEY=VALUE]...", help="What to run.")
    ],
    nproc: ProcessesOption = 1,
    nnodes: NodesOption = 1,
    rdzv_endpoint: EndpointOption = None,
    rdzv_id: RunIdOption = None,
    max_restarts: RestartsOption = 0,
    print_: PrintOption = False,
    to: ToOption = None,
    output: OutputOption = None,
    name: NameOption = None,
    gpus: GpusOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    minutes: MinutesOption = None,
    partition: PartitionOption = None,
    env: EnvironmentOption = None,
    setup: SetupOption = None,
    directory: DirectoryOption = None,
    json_: JsonOption = False,
) -> None:
    """Run `voicehub train` on several processes, or write that down for a cluster.

    With more than one process a run needs a strategy for it: training.strategy=ddp is added where
    none is chosen.
    """
    from voicehub.cli.launch_files import JobRequest
    from voicehub.cli.launch_plan import LaunchPlan

    plan = LaunchPlan(tuple(words), nproc, nnodes, rdzv_endpoint, rdzv_id, max_restarts)
    job = {
        "name": name, "gpus": gpus, "cpus": cpus, "memory": memory, "minutes": minutes,
        "partition": partition, "env": env, "setup": setup, "directory": directory,
    }  # fmt: skip
    given = {option: value for option, value in job.items() if value not in (None, [])}
    if to is None:
        _refuse({**given, **({} if output is None else {"output": output})})
        _launch_here(plan, only_print=print_, json_mode=json_)
        return
    if to not in _TARGETS:
        raise UsageError(f"--to {to}: expected one of {', '.join(_TARGETS)}.")
    if rdzv_endpoint is not None or rdzv_id is not None:
        raise UsageError(
            "--rdzv-endpoint and --rdzv-id: nodes of a job file meet where the cluster says. Leave "
            "them out."
        )
    request = JobRequest(
        name or "voicehub", gpus, cpus, memory, minutes, partition, tuple(env or ()),
        tuple(setup or ()), "." if directory is None else directory,
    )  # fmt: skip
    _write(to, settled(plan), request, output, json_mode=json_)


def _refuse(given: Mapping[str, object]) -> None:
    """Options that only a job file has, where none is asked for."""
    if given:
        options = ", ".join(f"--{option}" for option in given)
        raise UsageError(f"{options}: of a job file, and none is asked for: give --to as well.")


def _launch_here(plan: LaunchPlan, *, only_print: bool, json_mode: bool) -> None:
    plan = settled(plan, check_here=True, remote_too=only_print)
    if only_print:
        finish_with_command(plan, json_mode=json_mode)
        return
    from voicehub.cli.launch_run import run_here

    plan.options()  # several nodes without a meeting point are refused before anything is said
    say(f"$ {shlex.join(plan.torchrun())}", json_mode=json_mode)
    run_here(plan)
    finish({"launch": {"command": plan.torchrun()}}, json_mode=json_mode)


def settled(plan: LaunchPlan, *, check_here: bool = False, remote_too: bool = False) -> LaunchPlan:
    """Check the configuration that the plan runs, and add what several processes need.

    Args:
        check_here: what the configuration names must be on this machine.
        remote_too: and must not have to be fetched first.

    Raises:
        UsageError: the configuration is not valid.
        AssetError: lists what is missing.
    """
    from voicehub.cli.compose import compose_preset
    from voicehub.cli.validate import validate_run, validate_stages
    from voicehub.models.assets import locate_assets, named_assets, require_assets

    composition = compose_preset(plan.preset, plan.overrides)
    if SMOKE in plan.words:
        if plan.world_size > 1:
            raise UsageError(f"a smoke run ({SMOKE}) is one process: leave out --nproc, --nnodes.")
        return plan  # data and shapes are made when it runs
    validated = validate_stages(composition) if composition.stages else [validate_run(composition)]
    configs = [config for _, config in validated]
    if check_here:
        assets = dict.fromkeys(asset for config in configs for asset in named_assets(config))
        require_assets(locate_assets(assets), remote_too=remote_too)
    if plan.world_size > 1 and any(config.training.strategy == "torch" for config in configs):
        chosen = [item for item in plan.overrides if item.startswith("training.strategy=")]
        if chosen:
            raise UsageError(
                f"{chosen[0]} is for one process; {plan.world_size} need ddp, fsdp or a plugin's."
            )
        plan = plan.with_override("training.strategy=ddp")
    if plan.max_restarts and all(config.resume is None for config in configs):
        plan = plan.with_override("resume=auto")  # a restart that began anew would lose everything
    return plan


def finish_with_command(plan: LaunchPlan, *, json_mode: bool) -> None:
    """End with the command of a plan.

    Raises:
        UsageError: it holds a credential.
    """
    from voicehub.cli.launch_plan import refuse_secrets

    refuse_secrets(plan.words)
    command = plan.torchrun()
    finish({"launch": {"command": command}}, json_mode=json_mode, human=shlex.join(command))


def _write(
    to: str, plan: LaunchPlan, job: JobRequest, output: Path | None, *, json_mode: bool
) -> None:
    from voicehub.cli.launch_files import FILES

    text = FILES[to](plan, job)
    if output is None:
        finish({"launch": {"to": to, "text": text}}, json_mode=json_mode, human=text.rstrip())
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output} cannot be written: {error.strerror}.") from None
    how = {"sbatch": "sbatch", "skypilot": "sky launch", "dstack": "dstack apply -f"}[to]
    submit = f"{how} {shlex.quote(str(output))}"
    result = {"launch": {"to": to, "output": str(output), "submit": submit}}
    finish(result, json_mode=json_mode, human=f"wrote {output}; submit it with: {submit}")
