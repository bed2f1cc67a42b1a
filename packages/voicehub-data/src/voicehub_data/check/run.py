"""Check a manifest before training: files in parallel, findings by row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from voicehub_data.audio import END_TOLERANCE
from voicehub_data.check.findings import SEVERITIES, CheckReport, Finding, finding
from voicehub_data.check.probe import LEVEL_SECONDS, FileProbe, Levels, file_digest, probe_file
from voicehub_data.manifest.rows import Manifest, ManifestRow
from voicehub_data.parallel import map_parallel

# A clip whose peak stays under -60 dB of full scale is taken to be silent.
SILENCE_PEAK = 1e-3
# Shares of samples at full scale above this are reported as clipping.
CLIPPED_SHARE = 5e-4
# Shorter clips cannot hold a word; most models have no frame for them.
VERY_SHORT_SECONDS = 0.1


def check_manifest(
    manifest: Manifest, *, sample_rate: int | None = None, workers: int = 0, decode: bool = True
) -> CheckReport:
    """Look at every row and every audio file of a manifest.

    Args:
        manifest: read with ``strict=False`` to have unreadable rows reported too.
        sample_rate: expected rate in Hz; None takes the most frequent one of the files.
        workers: threads that read files; 0 reads in the calling thread.
        decode: decode all samples; False reads headers alone and cannot find NaN, clipping,
            silence or damage inside a file.

    Returns:
        Findings in the order of the rows; see ``check.findings.SEVERITIES`` for the kinds.
    """
    paths = list(dict.fromkeys(row.audio_filepath for row in manifest.rows))
    probes = dict(
        zip(
            paths,
            map_parallel(partial(probe_file, decode=decode), paths, workers=workers),
            strict=True,
        )
    )
    expected = sample_rate or _usual_rate(probes.values())
    findings = [
        Finding(p.row, "", None, p.kind, p.message, SEVERITIES[p.kind], p.source)
        for p in manifest.problems
        if p.kind != "duplicate-id"
    ]
    findings += _duplicate_ids(manifest.rows)
    for row in manifest.rows:
        findings += _row_findings(row, probes[row.audio_filepath], expected)
    findings += _duplicate_content(manifest.rows, probes, workers)
    findings.sort(key=lambda item: (str(item.source), item.row))
    failed = {(item.source, item.row) for item in findings if item.severity == "error"}
    rows_ok = tuple(row for row in manifest.rows if (row.source, row.row) not in failed)
    unread = sum(problem.kind != "duplicate-id" for problem in manifest.problems)
    return CheckReport(
        tuple(findings),
        rows_ok,
        len(manifest.rows) + unread,
        len(paths),
        sum(_seconds(row, probes[row.audio_filepath]) for row in rows_ok),
        decode,
    )


def _row_findings(
    row: ManifestRow, probe: FileProbe, expected_rate: int | None
) -> Iterable[Finding]:
    if not row.text.strip():
        yield finding(row, "empty-text", "the transcript is empty")
    if probe.problem is not None:
        yield finding(row, *probe.problem)
    info = probe.info
    if info is None:
        return
    if expected_rate is not None and info.sample_rate != expected_rate:
        yield finding(
            row, "wrong-rate", f"{info.sample_rate} Hz, expected {expected_rate}; will be resampled"
        )
    if info.channels > 1:
        yield finding(row, "multi-channel", f"{info.channels} channels; will be averaged to one")
    if info.frames > 0:
        yield from _span_findings(row, info.duration)
    if probe.levels is not None and probe.levels.frames:
        yield from _level_findings(row, probe.levels)


def _span_findings(row: ManifestRow, file_seconds: float) -> Iterable[Finding]:
    """Offset and duration against the file's length."""
    if row.offset >= file_seconds:
        yield finding(
            row,
            "offset-past-end",
            f"offset {row.offset:g} s, but the file ends at {file_seconds:.3f} s",
        )
        return
    rest = file_seconds - row.offset
    seconds = rest if row.duration is None else row.duration
    if row.duration is not None and row.duration - rest > END_TOLERANCE:
        kind = "offset-past-end" if row.is_segment else "duration-mismatch"
        end = row.offset + row.duration
        yield finding(row, kind, f"ends at {end:.3f} s, but the file at {file_seconds:.3f} s")
    elif row.duration is not None and not row.is_segment and rest - row.duration > END_TOLERANCE:
        yield finding(
            row,
            "duration-mismatch",
            f"duration {row.duration:.3f} s without an offset, but the file lasts "
            f"{file_seconds:.3f} s; give offset: 0 if only its start is meant",
        )
    if min(seconds, rest) < VERY_SHORT_SECONDS:
        yield finding(row, "very-short", f"{min(seconds, rest):.3f} s of audio")


def _level_findings(row: ManifestRow, levels: Levels) -> Iterable[Finding]:
    first = int(row.offset / LEVEL_SECONDS)
    last = len(levels.peaks)
    if row.duration is not None:
        last = min(last, int(np.ceil((row.offset + row.duration) / LEVEL_SECONDS)))
    peaks, bad = levels.peaks[first:last], levels.bad[first:last]
    if bad.any():
        yield finding(row, "non-finite", f"NaN or infinite samples in {int(bad.sum())} places")
    elif len(peaks) and peaks.max() < SILENCE_PEAK:
        yield finding(row, "silent", f"peak {float(peaks.max()):.1e} of full scale")
    if levels.clipped > CLIPPED_SHARE:
        yield finding(row, "clipped", f"{levels.clipped:.2%} of the samples at full scale")


def _duplicate_ids(rows: Sequence[ManifestRow]) -> Iterable[Finding]:
    first: dict[str, ManifestRow] = {}
    for row in rows:
        other = first.get(row.id)
        if other is None:
            first[row.id] = row
        else:
            yield finding(row, "duplicate-id", f"id {row.id!r} is taken by row {other.row}")


def _duplicate_content(
    rows: Sequence[ManifestRow], probes: dict[Path, FileProbe], workers: int
) -> Iterable[Finding]:
    """Rows that read the same stretch of the same sound as an earlier row."""
    contents = _contents(probes, workers)
    first: dict[tuple[str, float, float], ManifestRow] = {}
    for row in rows:
        content = contents.get(row.audio_filepath)
        if content is None:
            continue
        seconds = _seconds(row, probes[row.audio_filepath])
        key = (content, round(row.offset, 3), round(seconds, 3))
        other = first.get(key)
        if other is None:
            first[key] = row
        else:
            same = "file" if other.audio_filepath == row.audio_filepath else "audio"
            yield finding(
                row, "duplicate-content", f"same {same} as row {other.row} ({other.id!r})"
            )


def _contents(probes: dict[Path, FileProbe], workers: int) -> dict[Path, str]:
    """A name for what each usable file holds: equal names, equal sound.

    Without decoding, bytes are hashed of files that have another's size, and of no others.
    """
    usable = {path: probe for path, probe in probes.items() if probe.problem is None}
    by_size: defaultdict[int, list[Path]] = defaultdict(list)
    for path, probe in usable.items():
        if not probe.digest:
            by_size[probe.size].append(path)
    shared = [path for group in by_size.values() if len(group) > 1 for path in group]
    digests = dict(zip(shared, map_parallel(file_digest, shared, workers=workers), strict=True))
    return {
        path: probe.digest or digests.get(path) or f"path:{path}" for path, probe in usable.items()
    }


def _usual_rate(probes: Iterable[FileProbe]) -> int | None:
    rates = Counter(probe.info.sample_rate for probe in probes if probe.info is not None)
    return rates.most_common(1)[0][0] if rates else None


def _seconds(row: ManifestRow, probe: FileProbe) -> float:
    """Seconds of a row: stated, or to the end of its file."""
    if row.duration is not None:
        return row.duration
    if probe.info is None or probe.info.frames < 0:
        return 0.0
    return max(0.0, probe.info.duration - row.offset)
