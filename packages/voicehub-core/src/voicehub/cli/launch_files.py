"""Job files for Slurm, SkyPilot and dstack, written from one plan without any of these tools.

What each tool's schema asks for stands in a small model here, and a file is only written through
it, so that a field that the tool does not know cannot get into one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from voicehub.cli.launch_plan import MODULE, LaunchPlan, refuse_secrets
from voicehub.cli.output import UsageError

PORT = 29500
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JOB_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_KIND = re.compile(r"[\w.-]+")
_PARTITIONS = re.compile(r"[\w.-]+(,[\w.-]+)*")
_PLAIN = re.compile(r"[\w./~%@:,+-]+")
# Minutes before its time limit at which Slurm tells a job to stop.
GRACE = 2


@dataclass(frozen=True)
class JobRequest:
    """What a job asks of a cluster.

    Attributes:
        name: small letters, digits and dashes.
        gpus: kind of accelerator, such as ``H100``; None where the job needs none. There is one
            for each process.
        cpus: CPU cores of each node.
        memory: GB of each node.
        minutes: time limit.
        partition: (Slurm) where the job runs.
        environment: names of variables that processes get from whoever submits the job. Their
            values are never written down.
        setup: shell lines that run first, on each node; (Slurm) on the first node, whose
            environment `srun` hands to all.
        directory: the working directory on the cluster; (SkyPilot) what is copied there.

    Raises:
        UsageError: a value that one of the tools would misread.
    """

    name: str
    gpus: str | None = None
    cpus: int | None = None
    memory: int | None = None
    minutes: int | None = None
    partition: str | None = None
    environment: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    directory: str = "."

    def __post_init__(self) -> None:
        if not _JOB_NAME.fullmatch(self.name):
            raise UsageError(
                f"--name {self.name}: small letters, digits and dashes, a letter first, at most 40."
            )
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                shown = name.partition("=")[0]
                raise UsageError(
                    f"--env {shown}: give the name of a variable alone. Its value is taken from "
                    "the environment of whoever submits the job and never written into a file."
                )
        if self.gpus is not None and not _KIND.fullmatch(self.gpus):
            raise UsageError(f"--gpus {self.gpus!r}: expected a kind alone, such as H100.")
        if self.partition is not None and not _PARTITIONS.fullmatch(self.partition):
            raise UsageError(f"--partition {self.partition!r}: expected NAME or NAME,NAME.")
        if not self.directory or not self.directory.isprintable():
            raise UsageError(f"--directory {self.directory!r}: expected a path on one line.")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SkyPilotResources(_Model):
    """``resources`` of a SkyPilot task; ``accelerators`` is KIND:COUNT, ``cpus: 8+`` at least 8."""

    accelerators: Annotated[str, Field(pattern=r"^[\w.-]+:[1-9][0-9]*$")] | None = None
    cpus: Annotated[str, Field(pattern=r"^[1-9][0-9]*\+?$")] | None = None
    memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*\+?$")] | None = None


class SkyPilotTask(_Model):
    """A SkyPilot task. ``secrets`` without values are given with ``sky launch --secret NAME``."""

    name: Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$")]
    workdir: str
    num_nodes: Annotated[int, Field(ge=1)]
    resources: SkyPilotResources
    secrets: dict[str, None] = Field(default_factory=dict)
    setup: str | None = None
    run: str


class DstackResources(_Model):
    """``resources`` of a dstack task; ``8..`` is at least 8, memory and disk carry a unit."""

    gpu: Annotated[str, Field(pattern=r"^[\w.-]+:[1-9][0-9]*$")] | None = None
    cpu: Annotated[str, Field(pattern=r"^[1-9][0-9]*(\.\.)?$")] | None = None
    memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*GB(\.\.)?$")] | None = None


class DstackTask(_Model):
    """A dstack task. A name in ``env`` without a value is taken from whoever applies the file."""

    type: Literal["task"] = "task"
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{1,40}$")]
    nodes: Annotated[int, Field(ge=1)]
    python: Annotated[str, Field(pattern=r"^3\.1[0-3]$")] = "3.11"
    working_dir: str | None = None
    env: list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]]
    commands: Annotated[list[str], Field(min_length=1)]
    resources: DstackResources
    max_duration: Annotated[str, Field(pattern=r"^[1-9][0-9]*m$")] | None = None


def sbatch_file(plan: LaunchPlan, job: JobRequest) -> str:
    """A batch script for Slurm: one torchrun on each node, which meet on the first.

    Raises:
        UsageError: a credential is written out, or the time limit is too short.
    """
    refuse_secrets([*plan.words, *job.setup])
    if job.minutes is not None and job.minutes <= GRACE:
        raise UsageError(
            f"--minutes {job.minutes}: Slurm tells the run to stop {GRACE} minutes before the "
            "limit, which would be at once. Ask for more."
        )
    lines = [
        f"--job-name={job.name}",
        f"--nodes={plan.nodes}",
        "--ntasks-per-node=1",
        "--output=%x-%j.out",
        # The run saves a checkpoint when it is told to stop, and needs a moment for it.
        f"--signal=TERM@{60 * GRACE}",
    ]
    optional = {
        "--gpus-per-node": f"{job.gpus}:{plan.processes}" if job.gpus else None,
        "--cpus-per-task": job.cpus,
        "--mem": None if job.memory is None else f"{job.memory}G",
        "--time": job.minutes,
        "--partition": job.partition,
    }
    lines += [f"{option}={value}" for option, value in optional.items() if value is not None]
    if job.directory != ".":
        lines.append(f"--chdir={_in_header(job.directory)}")
    asked = [f': "${{{name}:?set {name} before sbatch}}"' for name in job.environment]
    # Not through a pipe to `head`, which may kill the writer, and with it the script.
    meet = 'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")\nread -r head <<< "$hosts"'
    command = _torchrun(plan, f'"$head:{PORT}"', '"$SLURM_JOB_ID"')
    body = [*asked, *job.setup, *([meet] if plan.nodes > 1 else []), f"srun {command}"]
    header = "".join(f"#SBATCH {line}\n" for line in lines)
    return f"#!/bin/bash\n{header}\nset -euo pipefail\n" + "".join(f"{line}\n" for line in body)


def _in_header(value: str) -> str:
    """As Slurm reads a ``#SBATCH`` line: spaces and # end an option, a backslash takes the next."""
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def skypilot_file(plan: LaunchPlan, job: JobRequest) -> str:
    """A task for ``sky launch``.

    Raises:
        UsageError: a credential is written out, or SkyPilot has nothing for an option.
    """
    refuse_secrets([*plan.words, *job.setup])
    if job.partition is not None:
        raise UsageError("--partition is Slurm's: SkyPilot has none. Leave it out.")
    if job.minutes is not None:
        raise UsageError(
            "--minutes: a SkyPilot task has no time limit. Leave it out; `sky autostop` ends "
            "machines that idle."
        )
    meet = 'read -r head <<< "$SKYPILOT_NODE_IPS"'
    command = _torchrun(plan, f'"$head:{PORT}"', '"$SKYPILOT_TASK_ID"')
    task = SkyPilotTask(
        name=job.name.rstrip("-"),
        workdir=job.directory,
        num_nodes=plan.nodes,
        resources=SkyPilotResources(
            accelerators=f"{job.gpus}:{plan.processes}" if job.gpus else None,
            cpus=None if job.cpus is None else f"{job.cpus}+",
            memory=None if job.memory is None else f"{job.memory}+",
        ),
        secrets=dict.fromkeys(job.environment),
        setup="".join(f"{line}\n" for line in job.setup) or None,
        run="".join(f"{line}\n" for line in [*([meet] if plan.nodes > 1 else []), command]),
    )
    values = task.model_dump(exclude_none=True, exclude={"secrets"})
    if task.secrets:  # one without a value is null, and not left out
        values["secrets"] = task.secrets
    return _yaml(values)


def dstack_file(plan: LaunchPlan, job: JobRequest) -> str:
    """A task for ``dstack apply``.

    Raises:
        UsageError: a credential is written out, or dstack has nothing for an option.
    """
    refuse_secrets([*plan.words, *job.setup])
    if job.partition is not None:
        raise UsageError("--partition is Slurm's: dstack has none. Leave it out.")
    if job.directory != "." and not job.directory.startswith("/"):
        raise UsageError(
            f"--directory {job.directory}: dstack needs an absolute path inside the container."
        )
    if len(job.name) < 2:
        raise UsageError(f"--name {job.name}: dstack needs two characters or more.")
    command = _torchrun(plan, f'"$DSTACK_MASTER_NODE_IP:{PORT}"', '"$DSTACK_RUN_NAME"')
    task = DstackTask(
        name=job.name,
        nodes=plan.nodes,
        working_dir=None if job.directory == "." else job.directory,
        env=list(job.environment),
        commands=[*job.setup, command],
        resources=DstackResources(
            gpu=f"{job.gpus}:{plan.processes}" if job.gpus else None,
            cpu=None if job.cpus is None else f"{job.cpus}..",
            memory=None if job.memory is None else f"{job.memory}GB..",
        ),
        max_duration=None if job.minutes is None else f"{job.minutes}m",
    )
    return _yaml(task.model_dump(exclude_none=True))


FILES: dict[str, Callable[[LaunchPlan, JobRequest], str]] = {
    "sbatch": sbatch_file,
    "skypilot": skypilot_file,
    "dstack": dstack_file,
}


def _torchrun(plan: LaunchPlan, endpoint: str, run_id: str) -> str:
    """The command with shell variables where the cluster knows better; all else is quoted."""
    words = [f"--nnodes={plan.nodes}", f"--nproc-per-node={plan.processes}"]
    if plan.max_restarts:
        words.append(f"--max-restarts={plan.max_restarts}")
    if plan.nodes == 1:
        return _join(["torchrun", "--standalone", *words], plan)
    meeting = f"--rdzv-backend=c10d --rdzv-endpoint={endpoint} --rdzv-id={run_id}"
    return _join(["torchrun", *words], plan, meeting)


def _join(options: Sequence[str], plan: LaunchPlan, unquoted: str = "") -> str:
    parts = [shlex.join(options), unquoted, shlex.join(["-m", MODULE, *plan.words])]
    return " ".join(part for part in parts if part)


def _yaml(values: dict[str, Any]) -> str:
    from importlib import import_module

    yaml = import_module("yaml")

    class Dumper(yaml.SafeDumper):  # type: ignore[misc, name-defined]
        """Text of several lines as such."""

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    written: str = yaml.dump(values, Dumper=Dumper, sort_keys=False, width=1000)
    return written
