"""``voicehub extract``: embeddings of every recording of a manifest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voicehub.cli.options import DeviceOption, JsonOption, resolve_device
from voicehub.cli.output import finish
from voicehub.cli.tables import duration
from voicehub_data.cli.options import ColumnMapOption, KindOption, SetOption, source_config

if TYPE_CHECKING:
    from voicehub_xvector.extract import ExtractionSummary

app = typer.Typer()


@app.command()
def extract(
    manifest: Annotated[
        str, typer.Argument(metavar="MANIFEST", help="The recordings: a manifest or a folder.")
    ],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="Directory for the embeddings.")],
    model: Annotated[str, typer.Option(help="A trained model: its directory or its run.")],
    format_: Annotated[
        str, typer.Option("--format", help="ark,csv; ark,scp; npz; parquet.")
    ] = "ark,csv",
    chunk_seconds: Annotated[
        float, typer.Option(help="Longer recordings are embedded in equal pieces of at most this.")
    ] = 30.0,
    energy_vad: Annotated[
        bool, typer.Option("--energy-vad", help="Leave out what is silent.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Pieces that share a forward.")] = 8,
    processes: Annotated[int, typer.Option(min=1, help="Each with its copy of the model.")] = 1,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard what an interrupted run has done.")
    ] = False,
    kind: KindOption = "auto",
    column_map: ColumnMapOption = None,
    set_: SetOption = None,
    device: DeviceOption = "auto",
    json_: JsonOption = False,
) -> None:
    """Embed every recording of MANIFEST with a speaker model and write the embeddings to OUTPUT.

    Audio is resampled to the model's rate; durations are those of the files. A run that was
    interrupted goes on where it stopped. Rows that cannot be embedded are listed in
    OUTPUT/failed.jsonl, and the command ends with exit code 1.
    """
    from voicehub_data.manifest import read_manifest
    from voicehub_xvector.extract import ExtractionSettings, extract_embeddings

    summary = extract_embeddings(
        model,
        read_manifest(source_config(manifest, kind, column_map, set_), role="eval"),
        output,
        format_=format_,
        settings=ExtractionSettings(chunk_seconds, energy_vad, batch_size),
        device=resolve_device(device),
        processes=processes,
        restart=restart,
        progress=_Progress() if sys.stderr.isatty() else None,
    )
    result = {
        "files": summary.files,
        "embedded": summary.embedded,
        "failed": len(summary.failures),
        "resumed": summary.resumed,
        "seconds": summary.seconds,
        "speech_seconds": summary.speech_seconds,
    }
    finish(result, json_mode=json_, human=_text(summary), ok=not summary.failures)


class _Progress:
    """One line on a terminal, overwritten."""

    def __call__(self, done: int, total: int) -> None:
        print(f"\r{done:,} of {total:,} rows", end="\n" if done == total else "", file=sys.stderr)


def _text(summary: ExtractionSummary) -> str:
    lines = [f"{summary.embedded:,} embeddings of {duration(summary.seconds)} of audio"]
    if summary.speech_seconds < 0.999 * summary.seconds:
        lines[0] += f", {duration(summary.speech_seconds)} of it speech"
    if summary.resumed:
        lines.append(f"{summary.resumed:,} rows were done by an earlier run")
    lines += [f"wrote {path}" for path in summary.files]
    for failure in summary.failures[:5]:
        lines.append(f"failed: {failure.location}: {failure.reason}")
    if len(summary.failures) > 5:
        lines.append(f"... and {len(summary.failures) - 5:,} more rows failed")
    return "\n".join(lines)
