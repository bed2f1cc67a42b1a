"""``voicehub remote``: its commands, each in a module of ``voicehub_remote.verbs``."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="remote",
    help="Run on a machine that you can ssh to.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
