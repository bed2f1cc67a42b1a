"""``voicehub checkpoint``: look at, verify and convert what training saved."""

from __future__ import annotations

import typer

app = typer.Typer(help="Look at, verify and convert checkpoints.", no_args_is_help=True)
