"""Arguments and options of ``voicehub features extract``, by what they decide."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_EXTRACTORS, _CLIPS, _STORE = "Features", "Clips", "Store and processes"

ManifestArgument = Annotated[
    str, typer.Argument(metavar="MANIFEST", help="The recordings: a manifest or a folder.")
]
StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="Directory of the store.")]

# -- what is extracted -----------------------------------------------------------------------

AudioOption = Annotated[
    str,
    typer.Option(
        "--audio",
        help="Latents: log-mel-pca (fitted here), encodec=DIR, dac=DIR.",
        rich_help_panel=_EXTRACTORS,
    ),
]
TextOption = Annotated[
    str,
    typer.Option(
        "--text",
        help="Texts: hashed, clip-text=DIR, text-encoder=DIR.",
        rich_help_panel=_EXTRACTORS,
    ),
]
ClipOption = Annotated[
    str | None,
    typer.Option(
        "--clip",
        help="Frames of the video: frame-grid, clip-vision=DIR.",
        rich_help_panel=_EXTRACTORS,
    ),
]
SyncOption = Annotated[
    str | None,
    typer.Option(
        "--sync",
        help="What moves in it: motion-grid, clip-vision=DIR.",
        rich_help_panel=_EXTRACTORS,
    ),
]
ExtractorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        help="KIND.KEY=VALUE of an extractor; repeat for more.",
        rich_help_panel=_EXTRACTORS,
    ),
]

# -- how recordings become clips -------------------------------------------------------------

SecondsOption = Annotated[
    float, typer.Option("--seconds", help="Of every clip.", rich_help_panel=_CLIPS)
]
MinSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--min-seconds",
        help="Reject shorter recordings; by default under --seconds.",
        rich_help_panel=_CLIPS,
    ),
]
ShortOption = Annotated[
    str,
    typer.Option(
        "--short",
        help="Recordings shorter than a clip: reject, or pad with silence.",
        rich_help_panel=_CLIPS,
    ),
]
MaxSegmentsOption = Annotated[
    int,
    typer.Option(
        "--max-segments",
        min=1,
        help="Clips of a recording, one after the other.",
        rich_help_panel=_CLIPS,
    ),
]
GainOption = Annotated[
    float,
    typer.Option(
        "--gain", help="Peak of every clip; 0 leaves it as it is.", rich_help_panel=_CLIPS
    ),
]

# -- where they go, and how many work on it --------------------------------------------------

DtypeOption = Annotated[
    str,
    typer.Option("--dtype", help="On disk: float32, bfloat16, float16.", rich_help_panel=_STORE),
]
ShardRowsOption = Annotated[
    int,
    typer.Option("--shard-rows", min=1, help="Recordings of a shard.", rich_help_panel=_STORE),
]
ProcessesOption = Annotated[
    int, typer.Option("--processes", min=1, help="That share the work.", rich_help_panel=_STORE)
]
RestartOption = Annotated[
    bool,
    typer.Option(
        "--restart",
        help="Discard what an interrupted run has done.",
        rich_help_panel=_STORE,
    ),
]
