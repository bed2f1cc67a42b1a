"""How a data source is named on the command line, in every command alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicehub.errors import ConfigurationError

if TYPE_CHECKING:
    from voicehub_data.config import DataSourceConfig

SourceArgument = Annotated[
    str, typer.Argument(help="Manifest, directory, or (--kind datasets) data set.")
]
KindOption = Annotated[
    str,
    typer.Option(
        help="jsonl, csv, tsv, ljspeech, commonvoice, kaldi, folder, datasets; auto tells."
    ),
]
ColumnMapOption = Annotated[
    list[str] | None,
    typer.Option("--column-map", "-m", help="FIELD=COLUMN for tables; repeat for more."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="KEY=VALUE of the source, e.g. audio_root=/corpus; repeat."),
]
RoleOption = Annotated[str, typer.Option(help="train or eval: which splits, of a data set.")]
WorkersOption = Annotated[
    int | None, typer.Option(min=0, help="Threads that read audio; all processors, at most 8.")
]


def source_config(
    source: str, kind: str, column_map: Sequence[str] | None, settings: Sequence[str] | None
) -> DataSourceConfig:
    """The source as configuration, as a preset would hold it.

    Raises:
        ConfigurationError: an option is not KEY=VALUE, or a key or value is wrong.
    """
    import yaml

    from voicehub_data.config import DataSourceConfig

    values: dict[str, Any] = {"path": source, "kind": kind}
    if column_map:
        values["column_map"] = dict(_pair(item, "--column-map") for item in column_map)
    for item in settings or ():
        key, text = _pair(item, "--set")
        try:
            values[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            values[key] = text
    return DataSourceConfig.load(values)


def workers_or_default(workers: int | None) -> int:
    from voicehub_data.parallel import default_workers

    return default_workers() if workers is None else workers


def _pair(item: str, option: str) -> tuple[str, str]:
    key, separator, value = item.partition("=")
    if not separator or not key or not value:
        raise ConfigurationError(f"{option} {item!r}: expected KEY=VALUE.")
    return key.strip(), value.strip()
