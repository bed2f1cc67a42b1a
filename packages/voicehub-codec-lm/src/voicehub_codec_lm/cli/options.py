"""What the commands of ``voicehub codec`` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from voicehub_codec_lm.codecs import AudioCodec
    from voicehub_data.manifest import Manifest

CodecOption = Annotated[
    str, typer.Option("--codec", help="A codec: its directory, or a Hub id of a pretrained one.")
]
DataOption = Annotated[str, typer.Option("--data", help="Manifest or folder of recordings.")]
CacheOption = Annotated[Path, typer.Option("--cache", help="Folder that codes are kept in.")]
CodebooksOption = Annotated[
    int | None, typer.Option(min=1, max=16, help="Use the first so many codebooks.")
]
RowsOption = Annotated[int | None, typer.Option(min=1, help="Only the first so many recordings.")]


def load(codec: str, num_codebooks: int | None = None) -> AudioCodec:
    """The codec of an option."""
    from voicehub_codec_lm.codecs import CodecConfig, load_codec

    return load_codec(CodecConfig(path=codec, num_codebooks=num_codebooks))


def manifest(data: str) -> Manifest:
    """The rows of an option; one that cannot be read is an error."""
    from voicehub_data.config import DataSourceConfig
    from voicehub_data.manifest import read_manifest

    return read_manifest(DataSourceConfig.load({"path": data}))
