"""Options of ``voicehub launch``, by what they decide: where processes meet, and the job file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_JOB = "Job file"

# -- processes -------------------------------------------------------------------------------

ProcessesOption = Annotated[int, typer.Option("--nproc", min=1, help="Processes on each node.")]
NodesOption = Annotated[int, typer.Option("--nnodes", min=1, help="Nodes.")]
EndpointOption = Annotated[
    str | None, typer.Option("--rdzv-endpoint", help="HOST:PORT where several nodes meet.")
]
RunIdOption = Annotated[
    str | None, typer.Option("--rdzv-id", help="Tells runs that meet there apart.")
]
RestartsOption = Annotated[
    int,
    typer.Option(
        "--max-restarts", min=0, help="Start all processes again so often after a failure."
    ),
]
PrintOption = Annotated[bool, typer.Option("--print", help="Print the torchrun command and stop.")]

# -- the job file ----------------------------------------------------------------------------

ToOption = Annotated[
    str | None,
    typer.Option("--to", help="Write a job file: sbatch, skypilot or dstack."),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", help="Where to.", rich_help_panel=_JOB)
]
NameOption = Annotated[
    str | None,
    typer.Option("--name", help="Name of the job; `voicehub` unless given.", rich_help_panel=_JOB),
]
GpusOption = Annotated[
    str | None,
    typer.Option("--gpus", help="Kind, e.g. H100; one a process.", rich_help_panel=_JOB),
]
CpusOption = Annotated[
    int | None, typer.Option("--cpus", min=1, help="Cores of a node.", rich_help_panel=_JOB)
]
MemoryOption = Annotated[
    int | None, typer.Option("--memory", min=1, help="GB of a node.", rich_help_panel=_JOB)
]
MinutesOption = Annotated[
    int | None,
    typer.Option("--minutes", min=1, help="Time limit (sbatch, dstack).", rich_help_panel=_JOB),
]
PartitionOption = Annotated[
    str | None, typer.Option("--partition", help="(sbatch)", rich_help_panel=_JOB)
]
EnvironmentOption = Annotated[
    list[str] | None,
    typer.Option("--env", help="Name of a variable that the job needs.", rich_help_panel=_JOB),
]
SetupOption = Annotated[
    list[str] | None,
    typer.Option("--setup", help="A shell line that runs first.", rich_help_panel=_JOB),
]
DirectoryOption = Annotated[
    str | None,
    typer.Option(
        "--directory",
        help="Working directory of the job; this one unless given.",
        rich_help_panel=_JOB,
    ),
]
