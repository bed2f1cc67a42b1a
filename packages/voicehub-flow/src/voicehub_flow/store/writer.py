"""Write shards in the published layout, and join them to a store."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub_data.files import write_file
from voicehub_flow.store import layout
from voicehub_flow.store.index import SHARDS, StoreIndex, StoreRow, digest_of
from voicehub_flow.store.layout import raw_bytes
from voicehub_flow.store.reader import statistics_of, valid_frames
from voicehub_flow.store.statistics import ChannelStatistics
from voicehub_flow.store.tables import StoreTable

#: What a finished shard says of its clips; the shard is complete where this file is there.
SHARD_FILE = "shard.json"


@dataclass(frozen=True)
class ShardClip:
    """A clip that was written: its id, text, and the digests of its tensors."""

    id: str
    text: str
    digests: Mapping[str, str]


@dataclass(frozen=True)
class ShardRecord:
    """What a shard says of itself.

    Attributes:
        clips: in the order of its rows.
        statistics: of its latents; None without clips.
        rejected: (id, location, reason) of rows that gave no clip.
        seconds: of the audio in it.
    """

    clips: Sequence[ShardClip]
    statistics: ChannelStatistics | None
    rejected: Sequence[tuple[str, str, str]] = ()
    seconds: float = 0.0


def write_shard(
    directory: Path,
    clips: Sequence[tuple[str, str]],
    tensors: Mapping[str, Tensor],
    rejected: Sequence[tuple[str, str, str]] = (),
    seconds: float = 0.0,
) -> ShardRecord:
    """Write a shard in one step: it is complete or not there.

    Args:
        directory: of the shard; what lies there is replaced.
        clips: (id, text) of every clip.
        tensors: by name, clips first.
        rejected: (id, location, reason) of rows that gave none.
        seconds: of audio.
    """
    temporary = directory.with_name(f".{directory.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        digests: list[dict[str, str]] = [{} for _ in clips]
        if clips:
            for name, tensor in tensors.items():
                layout.tensor_path(temporary, name).write_bytes(raw_bytes(tensor))
                for number in range(len(clips)):
                    digests[number][name] = digest_of(raw_bytes(tensor[number]))
            layout.write_meta(temporary, tensors)
        record = ShardRecord(
            [ShardClip(*clip, found) for clip, found in zip(clips, digests, strict=True)],
            _statistics(tensors) if clips else None,
            list(rejected),
            seconds,
        )
        write_file(temporary / SHARD_FILE, json.dumps(_as_json(record)).encode())
        shutil.rmtree(directory, ignore_errors=True)
        temporary.rename(directory)
    except OSError as error:
        raise DataError(f"{directory}: cannot be written ({error.strerror or error}).") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return record


def read_shard(directory: Path) -> ShardRecord:
    """What ``write_shard`` noted.

    Raises:
        ValueError, KeyError, OSError: it is not complete.
    """
    values = json.loads((directory / SHARD_FILE).read_text(encoding="utf-8"))
    statistics = values["statistics"]
    return ShardRecord(
        [ShardClip(**clip) for clip in values["clips"]],
        None if statistics is None else ChannelStatistics.from_json(statistics),
        [tuple(item) for item in values["rejected"]],
        float(values["seconds"]),
    )


def join_shards(
    store: Path,
    shards: Mapping[str, ShardRecord],
    *,
    extractors: Mapping[str, Any],
    record: Mapping[str, Any],
) -> StoreIndex:
    """Write the index over finished shards, empty ones left out.

    Args:
        store: the store.
        shards: records by directory, relative to the store, in the order of the corpus.
        extractors, record: see :class:`StoreIndex`.
    """
    kept = {name: shard for name, shard in shards.items() if shard.clips}
    rows = [
        StoreRow(clip.id, number, row, clip.text, clip.digests)
        for number, shard in enumerate(kept.values())
        for row, clip in enumerate(shard.clips)
    ]
    statistics: ChannelStatistics | None = None
    for shard in kept.values():
        if shard.statistics is not None:
            statistics = (
                shard.statistics if statistics is None else statistics.merged(shard.statistics)
            )
    counts = {name: len(shard.clips) for name, shard in kept.items()}
    index = StoreIndex(rows, counts, statistics, extractors, record)
    index.write(store)
    return index


def shard_name(number: int) -> str:
    """Directory of a shard, relative to the store."""
    return f"{SHARDS}/{number:06d}"


def index_published(directory: Path, table: StoreTable) -> StoreIndex:
    """Give a store in the published layout ids and checksums: row i is line i of the table.

    Raises:
        DataError: not such a store, or the table has another number of lines.
    """
    tensors = layout.read_layout(directory)
    count = next(iter(tensors.values())).shape[0]
    if len(table) != count:
        raise DataError(
            f"{table.path} has {len(table):,} clips, and {directory} holds {count:,} rows: they do "
            "not belong together, since row i of the store is line i of the table."
        )
    rows = [
        StoreRow(
            table.ids[number],
            0,
            number,
            table.texts[number],
            {name: digest_of(tensor.read_bytes(number)) for name, tensor in tensors.items()},
        )
        for number in range(count)
    ]
    statistics = statistics_of([tensors]) if layout.MEAN in tensors else None
    index = StoreIndex(rows, {".": count}, statistics, {}, {"table": str(table.path)})
    index.write(directory)
    return index


def _statistics(tensors: Mapping[str, Tensor]) -> ChannelStatistics | None:
    mean = tensors.get(layout.MEAN)
    if mean is None:
        return None
    return ChannelStatistics.of(valid_frames(mean, tensors.get(layout.FRAMES)))


def _as_json(record: ShardRecord) -> dict[str, Any]:
    return {
        "clips": [
            {"id": clip.id, "text": clip.text, "digests": dict(clip.digests)}
            for clip in record.clips
        ],
        "statistics": None if record.statistics is None else record.statistics.to_json(),
        "rejected": [list(item) for item in record.rejected],
        "seconds": record.seconds,
    }


def stacked(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of clips of one shape, clips first.

    Raises:
        DataError: a clip has another shape than the first; names the tensor.
    """
    made: dict[str, Tensor] = {}
    for name in rows[0] if rows else ():
        shapes = {tuple(row[name].shape) for row in rows}
        if len(shapes) > 1:
            raise DataError(f"{name}: clips of different shapes {sorted(shapes)} in one store.")
        made[name] = torch.stack([row[name] for row in rows])
    return made
