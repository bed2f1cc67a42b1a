"""``voicehub features index``: ids and checksums for a store in the published layout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish


def index(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="Directory with meta.json and .memmap files.")
    ],
    table: Annotated[Path, typer.Argument(metavar="TSV", help="Columns id and label or caption.")],
    json_: JsonOption = False,
) -> None:
    """Note that row i of STORE is line i of TSV, with a checksum of every clip.

    From then on clips are joined by id, whatever becomes of the table, and damage is found.
    """
    from voicehub_flow.store.tables import read_table
    from voicehub_flow.store.writer import index_published

    made = index_published(store, read_table(table))
    result = {"store": store, "clips": len(made.rows)}
    human = f"{store}: {len(made.rows):,} clips have ids and checksums now"
    finish(result, json_mode=json_, human=human, ok=True)
