"""Look at one audio file: header, and on request every sample."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.errors import DataError
from voicehub_data.audio import MP3_TOLERANCE_FRAMES, AudioInfo, info_of, open_audio, to_mono
from voicehub_data.check.containers import header_problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Levels are kept per block of this many seconds, so that segments of one file can be judged.
LEVEL_SECONDS = 0.05
_CHUNK_BLOCKS = 400
# At or above this, three samples in a row are a cut-off peak.
_FULL_SCALE = 0.999


@dataclass(frozen=True, slots=True)
class Levels:
    """Of the mono mix, per :data:`LEVEL_SECONDS`: peak, and whether a sample is not finite.

    ``clipped`` is the share of samples (of any channel) that lie in a run at full scale.
    """

    frames: int
    peaks: NDArray[np.float32]
    bad: NDArray[np.bool_]
    clipped: float


@dataclass(frozen=True, slots=True)
class FileProbe:
    """What is known of one file.

    Attributes:
        path: the file.
        size: bytes; -1 where it cannot be read.
        info: header, where it could be read.
        problem: ``(kind, message)`` where the file is unusable or damaged.
        levels: of its samples, where they were decoded.
        digest: of the decoded samples and their rate, where decoded.
    """

    path: Path
    size: int = -1
    info: AudioInfo | None = None
    problem: tuple[str, str] | None = None
    levels: Levels | None = None
    digest: str = ""


def probe_file(path: Path, *, decode: bool) -> FileProbe:
    """Read the header and, with ``decode``, all samples block by block. Never raises."""
    try:
        size = path.stat().st_size
    except OSError as error:
        return FileProbe(path, problem=("missing-file", _missing(path, error)))
    if path.is_dir():
        return FileProbe(path, problem=("missing-file", "is a directory, expected an audio file"))
    if size == 0:
        return FileProbe(path, 0, problem=("empty-file", "the file has zero bytes"))
    try:
        with open_audio(path) as file:
            info = info_of(file)
            problem = header_problem(path, info.format)
            if info.frames == 0 and problem is None:
                problem = ("empty-file", "the header is sound, but there are no samples")
            if not decode or info.frames == 0:
                return FileProbe(path, size, info, problem)
            return _decoded(file, path, size, info, problem)
    except DataError as error:
        reason = str(error).removeprefix(f"{path}: ")
        return FileProbe(path, size, problem=("undecodable", reason))


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes; empty where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def _decoded(
    file: Any, path: Path, size: int, info: AudioInfo, problem: tuple[str, str] | None
) -> FileProbe:
    """Decode a file whose header is read, and compare what comes with what it promises."""
    import soundfile

    digest = hashlib.blake2b(str(info.sample_rate).encode(), digest_size=16)
    try:
        levels = _measure(file, info.sample_rate, digest)
    except (soundfile.SoundFileError, RuntimeError) as error:
        reason = getattr(error, "error_string", None) or str(error)
        problem = problem or ("truncated", f"decoding breaks off: {reason.rstrip('. ')}")
        return FileProbe(path, size, info, problem)
    allowed = MP3_TOLERANCE_FRAMES if info.format == "MP3" else 0
    if problem is None and info.frames >= 0 and levels.frames + allowed < info.frames:
        problem = (
            "truncated",
            f"the header promises {info.frames} frames, only {levels.frames} can be decoded",
        )
    if problem is None and levels.frames == 0:
        problem = ("empty-file", "there are no samples")
    return FileProbe(path, size, info, problem, levels, digest.hexdigest())


def _measure(file: Any, sample_rate: int, digest: Any) -> Levels:
    block = max(1, round(sample_rate * LEVEL_SECONDS))
    chunk = block * _CHUNK_BLOCKS
    frames = clipped = 0
    peaks: list[NDArray[np.float32]] = []
    bad: list[NDArray[np.bool_]] = []
    while True:
        samples = file.read(chunk, dtype="float32", always_2d=True)
        frames += len(samples)
        if len(samples):
            mono = to_mono(samples)
            digest.update(mono.tobytes())
            clipped += _clipped_samples(samples)
            padded = np.zeros(-(-len(mono) // block) * block, dtype=np.float32)
            padded[: len(mono)] = mono
            blocks = padded.reshape(-1, block)
            finite = np.isfinite(blocks)
            bad.append(np.logical_not(finite.all(axis=1)))
            peaks.append(np.abs(np.where(finite, blocks, 0.0)).max(axis=1).astype(np.float32))
        if len(samples) < chunk:
            break
    empty = np.zeros(0, dtype=np.float32)
    return Levels(
        frames,
        np.concatenate(peaks) if peaks else empty,
        np.concatenate(bad) if bad else empty.astype(np.bool_),
        clipped / frames if frames else 0.0,
    )


def _clipped_samples(samples: NDArray[np.float32]) -> int:
    """Frames in which some channel is in a run of three or more samples at full scale."""
    height = np.abs(samples)
    at_top = (height >= _FULL_SCALE) & (height <= 1.0)
    if len(at_top) < 3 or not at_top.any():
        return 0
    centre = at_top[:-2] & at_top[1:-1] & at_top[2:]
    member = np.zeros_like(at_top)
    member[:-2] |= centre
    member[1:-1] |= centre
    member[2:] |= centre
    return int(member.any(axis=1).sum())


def _missing(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no such file: {path}"
    return f"{path}: {error.strerror or os.strerror(error.errno or 0)}"
