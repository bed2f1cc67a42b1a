"""``voicehub data convert``: any source to one manifest, on request with its audio rewritten."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicehub.cli.options import JsonOption, require_folder
from voicehub.cli.output import finish
from voicehub.cli.tables import duration
from voicehub.errors import ConfigurationError, DataError
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
    from voicehub_data.convert import AudioFormat, ConvertedAudio


def convert(
    source: SourceArgument,
    output: Annotated[Path, typer.Argument(help="Manifest to write: .jsonl, .csv or .tsv.")],
    kind: KindOption = "auto",
    column_map: ColumnMapOption = None,
    set_: SetOption = None,
    role: RoleOption = "train",
    durations: Annotated[
        bool, typer.Option(help="Fill in missing durations from audio headers.")
    ] = True,
    audio_dir: Annotated[
        Path | None,
        typer.Option(help="Write audio here, too: one mono 16-bit file a row, segments cut."),
    ] = None,
    sample_rate: Annotated[
        int | None, typer.Option(min=1, help="Hz of the audio written; its own by default.")
    ] = None,
    audio_format: Annotated[str, typer.Option(help="flac or wav.")] = "flac",
    overwrite: Annotated[bool, typer.Option(help="Replace files that exist.")] = False,
    workers: WorkersOption = None,
    json_: JsonOption = False,
) -> None:
    """Write a manifest from any source; with --audio-dir, also its audio, cut and resampled.

    The manifest is written last: where it stands, its audio is complete.
    """
    from voicehub_data.cli.roles import as_role
    from voicehub_data.convert import convert_audio
    from voicehub_data.durations import fill_durations
    from voicehub_data.manifest import read_manifest, write_manifest

    form = _audio_format(audio_format)
    if sample_rate is not None and audio_dir is None:
        raise ConfigurationError("--sample-rate needs --audio-dir: a manifest alone has no rate.")
    _require_target(output, overwrite)
    require_folder("OUTPUT's folder", output.parent)
    if audio_dir is not None:
        require_folder("--audio-dir", audio_dir)
    threads = workers_or_default(workers)
    config = source_config(source, kind, column_map, set_)
    manifest = read_manifest(config, role=as_role(role))
    if durations and audio_dir is None:
        manifest = fill_durations(manifest, workers=threads)
    rows = list(manifest.rows)
    result: dict[str, Any] = {"source": manifest.path, "kind": manifest.kind, "output": output}
    lines = []
    if audio_dir is not None:
        done = convert_audio(
            rows,
            audio_dir,
            sample_rate=sample_rate,
            audio_format=form,
            workers=threads,
            overwrite=overwrite,
        )
        rows = done.rows
        result |= {"audio_dir": audio_dir, "clipped_files": done.clipped_files}
        lines += _told(done, audio_dir)
    write_manifest(rows, output, overwrite=overwrite)
    seconds = sum(row.duration or 0.0 for row in rows)
    lines.append(f"wrote {output}: {len(rows):,} rows, {duration(seconds)}")
    lines += manifest.notes
    result |= {"rows": len(rows), "seconds": seconds, "notes": manifest.notes}
    finish(result, json_mode=json_, human="\n".join(lines))


def _audio_format(name: str) -> AudioFormat:
    if name == "flac" or name == "wav":
        return name
    raise ConfigurationError(f"--audio-format {name!r}: expected flac or wav.")


def _told(done: ConvertedAudio, directory: Path) -> list[str]:
    lines = [f"wrote {len(done.rows):,} files to {directory}"]
    if done.clipped_files:
        lines.append(f"{done.clipped_files:,} of them had samples beyond full scale, cut off")
    return lines


def _require_target(output: Path, overwrite: bool) -> None:
    if output.suffix.lower() not in (".jsonl", ".csv", ".tsv"):
        raise ConfigurationError(f"{output}: write a .jsonl, .csv or .tsv file.")
    if output.exists() and not overwrite:
        raise DataError(f"{output}: the file exists; choose another name or pass --overwrite.")
