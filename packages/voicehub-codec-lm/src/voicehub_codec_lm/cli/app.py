"""The typer application behind ``voicehub codec``."""

from __future__ import annotations

import typer

from voicehub_codec_lm.cli.decode import decode
from voicehub_codec_lm.cli.encode import encode
from voicehub_codec_lm.cli.evaluate import evaluate
from voicehub_codec_lm.cli.fit import fit

app = typer.Typer(
    help="Fit codecs to a corpus, encode it, and hear what is left of it.", no_args_is_help=True
)
app.command("fit")(fit)
app.command("encode")(encode)
app.command("decode")(decode)
app.command("eval")(evaluate)
