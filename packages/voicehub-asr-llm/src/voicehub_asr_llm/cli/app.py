"""``voicehub asr-llm``: what LLM recognisers offer beyond the common commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish

app = typer.Typer(help="Recognisers with a language model.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Recognisers with a language model."""


@app.command()
def merge(
    model: Annotated[str, typer.Argument(help="A trained model: its directory or its run.")],
    out: Annotated[Path, typer.Option(help="Folder to write; new or empty.")],
    encoder: Annotated[str | None, typer.Option(help="Where the encoder lies now.")] = None,
    decoder: Annotated[str | None, typer.Option(help="Where the decoder lies now.")] = None,
    json_: JsonOption = False,
) -> None:
    """Write the decoder with its adapters folded in, for plain transformers."""
    from voicehub.models.artifact import artifact_directory
    from voicehub_asr_llm.model import AsrLlm

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out} is not empty.")
    bases = {"encoder": encoder, "decoder": decoder}
    given = {part: path for part, path in bases.items() if path is not None}
    directory = artifact_directory(model)
    AsrLlm.from_pretrained(directory, lazy_load=False, **given).merge(out)
    result = {"model": str(directory), "out": str(out)}
    finish(result, json_mode=json_, human=f"wrote {out}")
