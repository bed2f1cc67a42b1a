from typing import Annotated

import typer

from voicehub.cli.output import UsageError, finish
from voicehub.errors import DataError

app = typer.Typer(help="Commands of the toy family.")


@app.command()
def count(
    to: int,
    json_: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Count."""
    if to < 0:
        raise UsageError(f"Cannot count to {to}.")
    if to > 100:
        raise DataError("That is too far.")
    finish({"count": to}, json_mode=json_, human=f"counted to {to}", ok=to != 13)


@app.command()
def crash(json_: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Break."""
    raise RuntimeError("the toy broke")
