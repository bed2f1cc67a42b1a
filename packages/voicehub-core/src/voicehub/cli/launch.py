"""``voicehub launch``: one training run on several processes, here or as a job file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish, say

if TYPE_CHECKING:
    from voicehub.cli.launch_files import JobRequest
    from voicehub.cli.launch_plan import LaunchPlan

SMOKE = "--smoke"
_JOB = "Job file"
_TARGETS = ("sbatch", "skypilot", "dstack")


def launch(
    words: Annotated[
        list[str], typer.Argument(metavar="-- train PRESET [KEY=VALUE]...", help="What to run.")
    ],
    nproc: Annotated[int, typer.Option(min=1, help="Processes on each node.")] = 1,
    nnodes: Annotated[int, typer.Option(min=1, help="Nodes.")] = 1,
    rdzv_endpoint: Annotated[
        str | None, typer.Option(help="HOST:PORT where several nodes meet.")
    ] = None,
    rdzv_id: Annotated[str | None, typer.Option(help="Tells runs that meet there apart.")] = None,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="Start all processes again so often after a failure.")
    ] = 0,
    print_: Annotated[
        bool, typer.Option("--print", help="Print the torchrun command and stop.")
    ] = False,
    to: Annotated[
        str | None, typer.Option(help="Write a job file: sbatch, skypilot or dstack.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Where to.", rich_help_panel=_JOB)] = None,
    name: Annotated[str, typer.Option(help="Name of the job.", rich_help_panel=_JOB)] = "voicehub",
    gpus: Annotated[
        str | None, typer.Option(help="Kind, e.g. H100; one a process.", rich_help_panel=_JOB)
    ] = None,
    cpus: Annotated[
        int | None, typer.Option(min=1, help="Cores of a node.", rich_help_panel=_JOB)
    ] = None,
    memory: Annotated[
        int | None, typer.Option(min=1, help="GB of a node.", rich_help_panel=_JOB)
    ] = None,
    minutes: Annotated[
        int | None, typer.Option(min=1, help="Time limit.", rich_help_panel=_JOB)
    ] = None,
    partition: Annotated[str | None, typer.Option(help="(sbatch)", rich_help_panel=_JOB)] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(help="Name of a variable that the job needs.", rich_help_panel=_JOB),
    ] = None,
    setup: Annotated[
        list[str] | None,
        typer.Option(help="A shell line that runs first.", rich_help_panel=_JOB),
    ] = None,
    directory: Annotated[
        str, typer.Option(help="Working directory of the job.", rich_help_panel=_JOB)
    ] = ".",
    json_: JsonOption = False,
) -> None:
    """Run `voicehub train` on several processes, or write that down for a cluster.

    With more than one process a run needs a strategy for it: training.strategy=ddp is added where
    none is chosen.
    """
    from voicehub.cli.launch_files import JobRequest
    from voicehub.cli.launch_plan import LaunchPlan

    if to is not None and to not in _TARGETS:
        raise UsageError(f"--to {to}: expected one of {', '.join(_TARGETS)}.")
    if output is not None and to is None:
        raise UsageError("--output is where a job file goes: give --to as well.")
    plan = LaunchPlan(tuple(words), nproc, nnodes, rdzv_endpoint, rdzv_id, max_restarts)
    if to is not None:
        job = JobRequest(
            name, gpus, cpus, memory, minutes, partition, tuple(env or ()), tuple(setup or ()),
            directory,
        )  # fmt: skip
        _write(to, settled(plan), job, output, json_mode=json_)
        return
    plan = settled(plan, check_here=True, remote_too=print_)
    if print_:
        finish_with_command(plan, json_mode=json_)
        return
    from voicehub.cli.launch_run import run_here

    plan.options()  # several nodes without a meeting point are refused before anything is said
    say(f"$ {shlex.join(plan.torchrun())}", json_mode=json_)
    run_here(plan)
    finish({"launch": {"command": plan.torchrun()}}, json_mode=json_)


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
