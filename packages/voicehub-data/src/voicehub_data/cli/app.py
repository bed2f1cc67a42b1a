"""The typer application behind ``voicehub data``."""

from __future__ import annotations

import typer

from voicehub_data.cli.check import check
from voicehub_data.cli.convert import convert
from voicehub_data.cli.stats import stats
from voicehub_data.cli.truecaser import app as truecaser
from voicehub_data.synthetic.command import synthesize

app = typer.Typer(help="Check, describe, convert and synthesise corpora.", no_args_is_help=True)
app.command("check")(check)
app.command("stats")(stats)
app.command("convert")(convert)
app.command("synthesize")(synthesize)
app.add_typer(truecaser, name="truecaser")
