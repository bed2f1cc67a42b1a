"""Extracting a whole manifest: groups, processes, assembly."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from voicehub.errors import ConfigurationError, DataError
from voicehub.models.artifact import artifact_directory
from voicehub_data.files import write_file
from voicehub_data.manifest import Manifest, ManifestRow
from voicehub_data.shared_work import Tell, run_shared
from voicehub_xvector.embeddings import EmbeddingTable, write_embeddings
from voicehub_xvector.embeddings.files import check_format
from voicehub_xvector.extract.group import GroupEmbedder
from voicehub_xvector.extract.job import (
    GROUP_ROWS,
    ExtractionSettings,
    Failure,
    GroupResult,
    PartsDirectory,
    job_identity,
)

FAILED_FILE, SUMMARY_FILE = "failed.jsonl", "summary.json"


@dataclass(frozen=True)
class ExtractionSummary:
    """What an extraction left.

    Attributes:
        files: written, below the output directory.
        embedded: rows with an embedding.
        failures: rows without, each with its reason.
        resumed: rows that an earlier, interrupted run had done.
        seconds, speech_seconds: of audio read, and of what embeddings were made from.
    """

    files: tuple[Path, ...]
    embedded: int
    failures: tuple[Failure, ...]
    resumed: int
    seconds: float
    speech_seconds: float


def extract_embeddings(
    model: str | Path,
    manifest: Manifest,
    output: str | Path,
    *,
    format_: str = "ark,csv",
    settings: ExtractionSettings | None = None,
    device: str = "cpu",
    processes: int = 1,
    restart: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ExtractionSummary:
    """Embed every row and write the embeddings in the order of the manifest.

    An interrupted run goes on where it stopped. A row that cannot be embedded is listed in
    ``failed.jsonl`` and tried again by the next run. Nothing else is left out.

    Args:
        model: directory of a model of this family, or of its run.
        manifest: rows with unique ids.
        output: directory; see :func:`~voicehub_xvector.embeddings.write_embeddings` for its files.
        format_: of the embeddings.
        settings: how recordings are cut and embedded.
        device: where the model runs.
        processes: that share the work, each with its own copy of the model.
        restart: discard what an earlier run has done.
        progress: called with the rows done and all rows, now and then.

    Raises:
        DataError: the directory holds another job's parts, or no row could be embedded.
        ConfigurationError: no such format or model.
        WorkerLostError: a process was killed; names the recording that it was at.
    """
    check_format(format_)
    settings = settings or ExtractionSettings()
    output, directory = Path(output), artifact_directory(model)
    if not directory.is_dir():
        raise ConfigurationError(f"{directory}: no such model directory.")
    rows = manifest.rows
    parts = PartsDirectory(output, job_identity(directory, rows, settings))
    parts.open(restart=restart)
    groups = range((len(rows) + GROUP_ROWS - 1) // GROUP_ROWS)
    pending = [group for group in groups if not parts.done(group)]
    work = ExtractionWork(directory, rows, settings, device, parts, GROUP_ROWS)
    done = resumed = len(rows) - sum(len(work.rows_of(group)) for group in pending)

    def told(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, len(rows))

    told(0)
    run_shared(work, pending, processes, told)
    results = [parts.read(group) for group in groups]
    summary = _assemble(results, rows, output, format_)
    if not summary.failures:
        parts.remove()
    return replace(summary, resumed=resumed)


@dataclass(frozen=True)
class ExtractionWork:
    """All that a process needs; travels to it.

    Attributes:
        model: directory of the model.
        rows: of the manifest.
        settings: how recordings are cut and embedded.
        device: where the model runs.
        parts: where groups of rows go.
        group_rows: rows of a group.
    """

    model: Path
    rows: Sequence[ManifestRow]
    settings: ExtractionSettings
    device: str
    parts: PartsDirectory
    group_rows: int

    def rows_of(self, group: int) -> Sequence[ManifestRow]:
        """The recordings of a group."""
        return self.rows[group * self.group_rows : (group + 1) * self.group_rows]

    def run(self, units: Sequence[int], tell: Tell) -> None:
        """Embed groups, telling of each how many recordings it had."""
        from voicehub_xvector.model import open_model

        embedder = GroupEmbedder(open_model(self.model, device=self.device), self.settings)
        for group in units:
            rows = self.rows_of(group)
            result = embedder.embed(rows, group * self.group_rows, tell.at)
            self.parts.write(group, result)
            tell.done(len(rows))


def _assemble(
    results: Sequence[GroupResult], rows: Sequence[ManifestRow], output: Path, format_: str
) -> ExtractionSummary:
    failures = tuple(failure for result in results for failure in result.failures)
    held = [result for result in results if len(result.positions)]
    if not held:
        first = f"{failures[0].location}: {failures[0].reason}" if failures else "no rows"
        raise DataError(f"{output}: not one of {len(rows)} rows could be embedded. {first}")
    kept = [rows[position] for result in held for position in result.positions]
    table = EmbeddingTable.of(
        (row.id for row in kept),
        np.concatenate([result.vectors for result in held]),
        durations=np.concatenate([result.durations for result in held]),
        speakers=[row.speaker or "" for row in kept],
        audio_filepaths=[str(row.audio_filepath) for row in kept],
    )
    files = write_embeddings(table, output, format_)
    lines = "".join(json.dumps(asdict(f), ensure_ascii=False) + "\n" for f in failures)
    if failures:
        write_file(output / FAILED_FILE, lines.encode())
        files.append(output / FAILED_FILE)
    else:
        (output / FAILED_FILE).unlink(missing_ok=True)
    return ExtractionSummary(
        tuple(files),
        len(kept),
        failures,
        0,
        float(table.durations.sum()),
        float(sum(result.speech.sum() for result in held)),
    )
