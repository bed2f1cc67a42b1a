"""``voicehub data stats``: what a corpus consists of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub.cli.tables import duration, table
from voicehub_data.cli.options import (
    ColumnMapOption,
    KindOption,
    RoleOption,
    SetOption,
    SourceArgument,
    WorkersOption,
    source_config,
    workers_or_default,
)

if TYPE_CHECKING:
    from voicehub_data.stats import CorpusStats, Distribution


def stats(
    source: SourceArgument,
    kind: KindOption = "auto",
    column_map: ColumnMapOption = None,
    set_: SetOption = None,
    role: RoleOption = "train",
    headers: Annotated[
        bool, typer.Option(help="Read audio headers, for rates and missing durations.")
    ] = True,
    top: Annotated[int, typer.Option(min=1, help="Speakers and languages printed.")] = 10,
    workers: WorkersOption = None,
    json_: JsonOption = False,
) -> None:
    """Hours, durations, rate of speech, words, characters, speakers, sample rates."""
    from voicehub_data.audio import audio_info
    from voicehub_data.cli.roles import as_role
    from voicehub_data.durations import fill_durations
    from voicehub_data.manifest import read_manifest
    from voicehub_data.parallel import map_parallel
    from voicehub_data.stats import describe_rows

    config = source_config(source, kind, column_map, set_)
    manifest = read_manifest(config, role=as_role(role))
    infos = []
    if headers:
        threads = workers_or_default(workers)
        manifest = fill_durations(manifest, workers=threads)
        paths = list(dict.fromkeys(row.audio_filepath for row in manifest.rows))
        infos = list(map_parallel(audio_info, paths, workers=threads))
    found = describe_rows(manifest.rows, infos)
    result = {"source": manifest.path, "kind": manifest.kind, "digest": manifest.digest}
    finish({**result, **found.as_dict()}, json_mode=json_, human=_text(found, top))


def _text(found: CorpusStats, top: int) -> str:
    lines = [
        f"{found.rows:,} rows, {duration(found.seconds)} of audio",
        f"{found.words:,} words, {found.vocabulary:,} different; "
        f"{len(found.characters):,} different characters",
    ]
    lacking = [
        (found.without_duration, "without a duration"),
        (found.without_text, "without text"),
        (found.repeated_texts, "with a text that another row has"),
    ]
    lines += [f"{count:,} rows {what}" for count, what in lacking if count]
    rows = [
        (name, item.mean, *item.percentiles.values())
        for name, item in _distributions(found).items()
    ]
    if rows:
        heads = ("", "mean", "min", "5 %", "25 %", "median", "75 %", "95 %", "max")
        lines += ["", table(heads, rows)]
    characters = "".join(sorted(found.characters)).replace("\t", "\\t")
    lines += ["", f"characters: {characters!r}"]
    for title, values in (
        ("sample rate (Hz)", found.sample_rates),
        ("channels", found.channels),
        ("format", found.formats),
    ):
        if values:
            parts = (f"{value}: {count:,} files" for value, count in values.items())
            lines.append(f"{title}: {', '.join(parts)}")
    lines += _by_seconds("speaker", found.speakers, top)
    lines += _by_seconds("language", found.languages, top)
    return "\n".join(lines)


def _distributions(found: CorpusStats) -> dict[str, Distribution]:
    named = {"seconds": found.duration, "characters/s": found.characters_per_second}
    return {name: item for name, item in named.items() if item is not None}


def _by_seconds(title: str, seconds: Mapping[str, float], top: int) -> list[str]:
    if not seconds:
        return []
    rows = [(name, duration(value)) for name, value in list(seconds.items())[:top]]
    more = [f"... and {len(seconds) - top:,} more"] if len(seconds) > top else []
    return ["", table((title, "audio"), rows), *more]
