"""``voicehub features extract``: a manifest into a feature store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub.cli.tables import duration
from voicehub_data.cli.options import ColumnMapOption, KindOption, SetOption, source_config
from voicehub_flow.features.cli.extract_options import (
    AudioOption,
    ClipOption,
    DtypeOption,
    ExtractorOption,
    GainOption,
    ManifestArgument,
    MaxSegmentsOption,
    MinSecondsOption,
    ProcessesOption,
    RestartOption,
    SecondsOption,
    ShardRowsOption,
    ShortOption,
    StoreArgument,
    SyncOption,
    TextOption,
)

if TYPE_CHECKING:
    from voicehub_flow.features.run import ExtractionSummary


def extract(
    manifest: ManifestArgument,
    store: StoreArgument,
    audio: AudioOption = "log-mel-pca",
    text: TextOption = "hashed",
    clip: ClipOption = None,
    sync: SyncOption = None,
    option: ExtractorOption = None,
    seconds: SecondsOption = 8.0,
    min_seconds: MinSecondsOption = None,
    short: ShortOption = "reject",
    max_segments: MaxSegmentsOption = 1,
    gain: GainOption = 0.95,
    dtype: DtypeOption = "float32",
    shard_rows: ShardRowsOption = 64,
    processes: ProcessesOption = 1,
    restart: RestartOption = False,
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
