"""``voicehub features extract``: a manifest into a feature store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub.cli.tables import duration
from voicehub_data.cli.options import ColumnMapOption, KindOption, SetOption, source_config

if TYPE_CHECKING:
    from voicehub_flow.features.run import ExtractionSummary


def extract(
    manifest: Annotated[
        str, typer.Argument(metavar="MANIFEST", help="The recordings: a manifest or a folder.")
    ],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Directory of the store.")],
    audio: Annotated[
        str,
        typer.Option(help="Latents: log-mel-pca (fitted here), encodec=DIR, dac=DIR."),
    ] = "log-mel-pca",
    text: Annotated[
        str, typer.Option(help="Texts: hashed, clip-text=DIR, text-encoder=DIR.")
    ] = "hashed",
    clip: Annotated[
        str | None, typer.Option(help="Frames of the video: frame-grid, clip-vision=DIR.")
    ] = None,
    sync: Annotated[
        str | None, typer.Option(help="What moves in it: motion-grid, clip-vision=DIR.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="KIND.KEY=VALUE of an extractor; repeat for more."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Of every clip.")] = 8.0,
    min_seconds: Annotated[
        float | None, typer.Option(help="Reject shorter recordings; by default under --seconds.")
    ] = None,
    short: Annotated[
        str, typer.Option(help="Recordings shorter than a clip: reject, or pad with silence.")
    ] = "reject",
    max_segments: Annotated[
        int, typer.Option(min=1, help="Clips of a recording, one after the other.")
    ] = 1,
    gain: Annotated[float, typer.Option(help="Peak of every clip; 0 leaves it as it is.")] = 0.95,
    dtype: Annotated[str, typer.Option(help="On disk: float32, bfloat16, float16.")] = "float32",
    shard_rows: Annotated[int, typer.Option(min=1, help="Recordings of a shard.")] = 64,
    processes: Annotated[int, typer.Option(min=1, help="That share the work.")] = 1,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard what an interrupted run has done.")
    ] = False,
    kind: KindOption = "auto",
    column_map: ColumnMapOption = None,
    set_: SetOption = None,
    json_: JsonOption = False,
) -> None:
    """Extract features of every recording of MANIFEST into STORE.

    The manifest's text is the label or caption; its columns video and video_fps name the video. A
    run that was interrupted goes on where it stopped. Recordings that are too short, silent or
    broken are counted by reason and listed in STORE/rejected.jsonl.
    """
    from voicehub_data.manifest import read_manifest
    from voicehub_flow.features.run import extract_features
    from voicehub_flow.features.settings import ExtractionSettings, choices

    chosen = choices({"audio": audio, "text": text, "clip": clip, "sync": sync}, option or [])
    settings = ExtractionSettings.load(
        {
            "seconds": seconds,
            "min_seconds": min_seconds,
            "short": short,
            "max_segments": max_segments,
            "gain": gain or None,
            "dtype": dtype,
            "shard_rows": shard_rows,
        }
    )
    summary = extract_features(
        read_manifest(source_config(manifest, kind, column_map, set_)),
        store,
        chosen,
        settings=settings,
        processes=processes,
        restart=restart,
        progress=_Progress() if sys.stderr.isatty() else None,
    )
    result = {
        "store": summary.store,
        "clips": summary.clips,
        "rejected": summary.rejected,
        "resumed": summary.resumed,
        "seconds": summary.seconds,
        "tensors": summary.tensors,
    }
    finish(result, json_mode=json_, human=_text(summary), ok=True)


class _Progress:
    """One line on a terminal, overwritten."""

    def __call__(self, done: int, total: int) -> None:
        print(f"\r{done:,} of {total:,} rows", end="\n" if done == total else "", file=sys.stderr)


def _text(summary: ExtractionSummary) -> str:
    lines = [f"{summary.store}: {summary.clips:,} clips, {duration(summary.seconds)} of audio"]
    lines += [f"  {name}: {shape}" for name, shape in summary.tensors.items()]
    if summary.resumed:
        lines.append(f"{summary.resumed:,} recordings were done by an earlier run")
    for reason, count in summary.rejected.items():
        lines.append(f"rejected, {reason}: {count:,}, e.g. {summary.examples[reason]}")
    lines.append(f"check it: voicehub features verify {summary.store}")
    return "\n".join(lines)
