"""The typer application behind ``voicehub features``."""

from __future__ import annotations

import typer

from voicehub_flow.features.cli.extract import extract
from voicehub_flow.features.cli.index import index
from voicehub_flow.features.cli.verify import verify

app = typer.Typer(
    help="Extract features of recordings into a store, and check stores.", no_args_is_help=True
)
app.command("extract")(extract)
app.command("verify")(verify)
app.command("index")(index)
