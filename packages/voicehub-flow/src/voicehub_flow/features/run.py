"""Extracting a whole manifest: shards, processes, and the store that they make."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.audio import load_audio
from voicehub_data.files import write_file
from voicehub_data.manifest import Manifest, ManifestRow
from voicehub_data.shared_work import Tell, run_shared
from voicehub_flow.features.base import Extractor, Kind, TextExtractor
from voicehub_flow.features.clips import Clip, ClipMaker
from voicehub_flow.features.job import EXTRACTORS, ShardedJob, job_identity
from voicehub_flow.features.mel_pca import MelPca, MelPcaSettings
from voicehub_flow.features.registry import build_extractor, store_extractor
from voicehub_flow.features.settings import ExtractionSettings, ExtractorChoice
from voicehub_flow.store import layout
from voicehub_flow.store.null_text import write_null_text
from voicehub_flow.store.writer import ShardRecord, join_shards, shard_name, stacked, write_shard

REJECTED_FILE = "rejected.jsonl"
#: Recordings that built-in audio latents are fitted on, evenly spaced, and seconds of each.
_FIT_ROWS, _FIT_SECONDS = 2000, 10.0

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ExtractionSummary:
    """What an extraction left.

    Attributes:
        store: its directory.
        clips: in the store.
        rejected: recordings or parts of them without a clip, by reason.
        examples: the first message of each reason.
        resumed: recordings that an earlier run had done.
        seconds: of audio in the store.
        tensors: shape of a clip and dtype, by name.
    """

    store: Path
    clips: int
    rejected: Mapping[str, int]
    examples: Mapping[str, str]
    resumed: int
    seconds: float
    tensors: Mapping[str, str]


def extract_features(
    manifest: Manifest,
    store: str | Path,
    chosen: Mapping[Kind, ExtractorChoice],
    *,
    settings: ExtractionSettings | None = None,
    processes: int = 1,
    restart: bool = False,
    progress: Progress | None = None,
) -> ExtractionSummary:
    """Extract features of every recording into a store.

    An interrupted run goes on where it stopped. Which clips there are, and their order, depends
    neither on the number of processes nor on interruptions.

    Args:
        manifest: recordings with unique ids; ``text`` is the label or caption.
        store: directory.
        chosen: extractors of ``audio`` and ``text``, and, for videos, ``clip`` and ``sync``.
        settings: how recordings become clips.
        processes: that share the work, each with its own extractors.
        restart: discard what an earlier run has done.
        progress: called with the recordings done and all of them.

    Raises:
        DataError: the directory holds another job's work, or not one recording gives a clip.
        ConfigurationError: an extractor cannot be built.
        WorkerLostError: a process was killed; names the recording that it was at.
    """
    settings, store = settings or ExtractionSettings(), Path(store)
    missing = [kind for kind in ("audio", "text") if kind not in chosen]
    if missing:
        raise ConfigurationError(f"no extractor of {' and '.join(missing)} was chosen.")
    rows = list(manifest.rows)
    job = ShardedJob(store, job_identity(rows, chosen, settings))
    job.open(restart=restart)
    fitted = _fitted(chosen, store, rows)
    shards = range(-(-len(rows) // settings.shard_rows))
    pending = [number for number in shards if job.done(number) is None]
    work = ShardWork(store, rows, fitted, settings)
    resumed = len(rows) - sum(len(work.rows_of(number)) for number in pending)
    tell = _Progress(progress, resumed, len(rows))
    run_shared(work, pending, processes, tell.add)
    records = {}
    for number in shards:
        record = job.done(number)
        if record is None:
            raise DataError(f"{store / shard_name(number)}: was written, and cannot be read.")
        records[shard_name(number)] = record
    return _assemble(work, records, resumed)


@dataclass(frozen=True)
class ShardWork:
    """All that a process needs; travels to it.

    Attributes:
        store: where shards go.
        rows: of the manifest.
        chosen: extractors, all of which can be built now.
        settings: how recordings become clips.
    """

    store: Path
    rows: Sequence[ManifestRow]
    chosen: Mapping[Kind, ExtractorChoice]
    settings: ExtractionSettings

    def rows_of(self, number: int) -> Sequence[ManifestRow]:
        """The recordings of a shard."""
        size = self.settings.shard_rows
        return self.rows[number * size : (number + 1) * size]

    def extractors(self) -> dict[Kind, Extractor]:
        """Build them."""
        return {
            kind: build_extractor(kind, choice.name, choice.directory, choice.options)
            for kind, choice in self.chosen.items()
        }

    def run(self, units: Sequence[int], tell: Tell) -> None:
        """Write shards, telling of each how many recordings it had."""
        maker = ClipMaker(self.extractors(), self.settings)
        for number in units:
            self._shard(maker, number, tell)
            tell.done(len(self.rows_of(number)))

    def _shard(self, maker: ClipMaker, number: int, tell: Tell) -> None:
        clips: list[Clip] = []
        rejected: list[tuple[str, str, str]] = []
        for row in self.rows_of(number):
            tell.at(f"{row.audio_filepath} ({row.location})")
            for found in maker.clips(row):
                if isinstance(found, Clip):
                    clips.append(found)
                else:
                    reason, message = found
                    rejected.append((row.id, reason, f"{row.location}: {message}"))
        tensors = self._tensors(maker.text, clips)
        names = [(clip.id, clip.text) for clip in clips]
        seconds = sum(clip.seconds for clip in clips)
        write_shard(self.store / shard_name(number), names, tensors, rejected, seconds)

    def _tensors(self, text: TextExtractor, clips: Sequence[Clip]) -> dict[str, Tensor]:
        if not clips:
            return {}
        tensors = stacked([clip.tensors for clip in clips])
        tensors[layout.TEXT] = text.encode([clip.text for clip in clips])
        dtype = getattr(torch, self.settings.dtype)
        ordered = (*layout.VIDEO_TENSORS, layout.FRAMES)
        return {
            name: tensors[name].to(dtype) if name != layout.FRAMES else tensors[name]
            for name in ordered
            if name in tensors
        }


class _Progress:
    """Adds up what is done."""

    def __init__(self, show: Progress | None, done: int, total: int) -> None:
        self._show, self._done, self._total = show or (lambda done, total: None), done, total
        self.add(0)

    def add(self, rows: int) -> None:
        self._done += rows
        self._show(self._done, self._total)


def _assemble(
    work: ShardWork, records: Mapping[str, ShardRecord], resumed: int
) -> ExtractionSummary:
    store = work.store
    rejected = [item for record in records.values() for item in record.rejected]
    counts = dict(Counter(reason for _, reason, _ in rejected))
    examples: dict[str, str] = {}
    for _, reason, message in rejected:
        examples.setdefault(reason, message)
    clips = sum(len(record.clips) for record in records.values())
    if not clips:
        first = next(iter(examples.values()), "the manifest is empty")
        raise DataError(f"{store}: not one of {len(work.rows)} recordings gives a clip. {first}")
    extractors = work.extractors()
    kept: dict[str, Any] = {
        kind: store_extractor(extractor, store / EXTRACTORS / kind)
        for kind, extractor in extractors.items()
    }
    write_null_text(store, cast("TextExtractor", extractors["text"]).encode([""])[0])
    lines = "".join(
        json.dumps({"id": name, "reason": reason, "message": message}, ensure_ascii=False) + "\n"
        for name, reason, message in rejected
    )
    write_file(store / REJECTED_FILE, lines.encode())
    seconds = sum(record.seconds for record in records.values())
    record = {
        "seconds": seconds,
        "clip_seconds": work.settings.seconds,
        "rejected": counts,
        "settings": work.settings.model_dump(mode="json"),
    }
    join_shards(store, records, extractors=kept, record=record)
    first_shard = next(name for name, shard in records.items() if shard.clips)
    tensors = layout.read_layout(store / first_shard)
    shapes = {name: f"{list(t.row_shape)} {t.dtype}" for name, t in tensors.items()}
    return ExtractionSummary(store, clips, counts, examples, resumed, seconds, shapes)


def _fitted(
    chosen: Mapping[Kind, ExtractorChoice], store: Path, rows: Sequence[ManifestRow]
) -> dict[Kind, ExtractorChoice]:
    """Choices that can be built: audio latents without a directory are fitted on the corpus."""
    audio = chosen["audio"]
    if audio.name != MelPca.name or audio.directory is not None:
        return dict(chosen)
    directory = store / EXTRACTORS / "audio"
    if not directory.is_dir():
        config = MelPcaSettings.load(audio.options)
        fitted = MelPca.fit(_fit_clips(rows, config.sample_rate), config)
        temporary = directory.with_name(f".{directory.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        fitted.save(temporary)
        temporary.rename(directory)
    return {**chosen, "audio": ExtractorChoice(audio.name, directory, audio.options)}


def _fit_clips(rows: Sequence[ManifestRow], rate: int) -> Iterator[Tensor]:
    count = min(len(rows), _FIT_ROWS)
    for number in range(count):
        row: Any = rows[number * len(rows) // count]
        try:
            audio = load_audio(
                row.audio_filepath,
                sample_rate=rate,
                offset=row.offset,
                duration=None if row.duration is None else min(row.duration, _FIT_SECONDS),
            )
        except DataError:
            continue  # the extraction rejects and counts it
        yield torch.from_numpy(audio)
