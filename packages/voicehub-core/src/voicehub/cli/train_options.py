"""Arguments and options of ``voicehub train``, beside those it shares with ``voicehub launch``."""

from __future__ import annotations

from typing import Annotated

import typer

_PRINTED = "Launch command"

PresetArgument = Annotated[
    str, typer.Argument(metavar="PRESET", help="FAMILY/NAME, a file of ./configs, or a .yaml.")
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Settings in Hydra's syntax: training.learning_rate=1e-3, data=my_corpus, "
        "+experiments=my_run.",
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the resolved configuration and stop.")
]
SmokeOption = Annotated[
    bool,
    typer.Option(
        "--smoke",
        help="Train, save, resume, evaluate, sample, export and load again: a few updates in "
        "tiny shapes on a CPU, in a directory that is deleted afterwards.",
    ),
]
EstimateOption = Annotated[
    bool,
    typer.Option(
        "--estimate/--no-estimate",
        help="Tell what memory the run needs beside what its device has, once that is worked "
        "out beside the run, which it does not change or wait for.",
    ),
]

# -- what is printed and not run -------------------------------------------------------------

PrintLaunchOption = Annotated[
    bool,
    typer.Option(
        "--print-launch",
        help="Check that everything the configuration names is here, print the torchrun command "
        "for --nproc and --nnodes, and stop.",
        rich_help_panel=_PRINTED,
    ),
]
PrintedProcessesOption = Annotated[
    int, typer.Option("--nproc", min=1, help="Processes on each node.", rich_help_panel=_PRINTED)
]
PrintedNodesOption = Annotated[
    int, typer.Option("--nnodes", min=1, help="Nodes.", rich_help_panel=_PRINTED)
]
PrintedEndpointOption = Annotated[
    str | None,
    typer.Option("--rdzv-endpoint", help="HOST:PORT where nodes meet.", rich_help_panel=_PRINTED),
]
