"""Decode audio files to mono float32 at a stated sample rate.

WAV, FLAC, OGG and MP3 are decoded by libsndfile and resampled by soxr. A segment is read by
seeking, so the rest of a long recording is never decoded. Nothing is repaired silently: a file
that is missing, empty, not audio, shorter than its header says or not finite is a
:class:`~voicehub.errors.DataError` that names the file and the reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

AUDIO_SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3"})

# Manifests round durations, some of them to 0.1 s. A segment may end this many seconds behind the
# end of its file and is then cut there; beyond that, the manifest is wrong.
END_TOLERANCE = 0.06

# MP3 lengths come from a tag or an estimate; two MPEG frames of difference are no damage.
MP3_TOLERANCE_FRAMES = 2 * 1152

# Rates beyond these come from damaged headers; resampling from 1 Hz would fill the memory.
_PLAUSIBLE_RATES = range(1_000, 1_000_001)

_BLOCK_FRAMES = 1 << 16
# A damaged header may promise terabytes: longer reads than this allocate as they go.
_TRUSTED_FRAMES = 1 << 24


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """What a file's header says.

    Attributes:
        sample_rate: samples a second and channel, in Hz.
        frames: samples per channel; -1 where the container states no length.
        channels: number of channels.
        duration: frames / sample_rate in seconds; NaN where frames is -1.
        format: container, e.g. ``"WAV"``, ``"FLAC"``, ``"OGG"``, ``"MP3"``.
        subtype: encoding, e.g. ``"PCM_16"``, ``"FLOAT"``, ``"VORBIS"``.
    """

    sample_rate: int
    frames: int
    channels: int
    duration: float
    format: str
    subtype: str = ""


def audio_info(path: str | Path) -> AudioInfo:
    """Read the header of an audio file; no sample is decoded.

    Raises:
        DataError: the file is missing, empty, a directory, or not audio.
    """
    with open_audio(path) as file:
        return info_of(file)


def info_of(file: Any) -> AudioInfo:
    """The :class:`AudioInfo` of an open ``soundfile.SoundFile``."""
    frames = int(file.frames)
    # libsndfile gives the largest positive integer where a stream's length is unknown.
    if frames >= 2**62:
        frames = -1
    duration = frames / file.samplerate if frames >= 0 else math.nan
    return AudioInfo(
        int(file.samplerate), frames, int(file.channels), duration, file.format, file.subtype
    )


def open_audio(path: str | Path) -> Any:
    """Open a file as ``soundfile.SoundFile``, or raise a :class:`DataError` that says why not."""
    import soundfile

    path = Path(path)
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise DataError(f"{path}: expected an audio file, found a directory.")
        if size == 0:
            raise DataError(f"{path}: the file is empty (zero bytes); restore it or drop the row.")
        return _accepted(soundfile.SoundFile(path), path)
    except FileNotFoundError:
        raise DataError(
            f"{path}: no such audio file. Check the path in the manifest and the folder that its "
            "relative paths start from (audio_root; by default the manifest's own folder)."
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except soundfile.SoundFileError as error:
        raise DataError(
            f"{path}: not decodable as audio ({_reason(error)}). Supported are WAV, FLAC, OGG and "
            "MP3; re-export the file or remove the row."
        ) from error


def _accepted(file: Any, path: Path) -> Any:
    """The file, made fit for reading, or a :class:`DataError` where its header is absurd."""
    if int(file.samplerate) not in _PLAUSIBLE_RATES:
        file.close()
        raise DataError(
            f"{path}: the header states a sample rate of {file.samplerate} Hz; the file is "
            "damaged. Re-export it or remove the row."
        )
    if info_of(file).frames < 0:
        # soundfile seeks after every read, which fails at the end of a stream of unknown length.
        file.seekable = lambda: False
    return file


def resampled_length(frames: int, from_rate: int, to_rate: int) -> int:
    """Number of samples that :func:`resample` returns: frames * to / from, halves rounded up.

    At least 1 where ``frames`` is, so that no clip vanishes.
    """
    if frames <= 0:
        return 0
    return max(1, (2 * frames * to_rate + from_rate) // (2 * from_rate))


def resample(audio: NDArray[np.float32], from_rate: int, to_rate: int) -> NDArray[np.float32]:
    """Resample mono float32 audio ``(n,)`` with soxr (high quality) to an exact length.

    The length is :func:`resampled_length`; the resampler's own, which may differ by one sample,
    is cut or extended with its last value.
    """
    if from_rate == to_rate:
        return audio
    import soxr

    length = resampled_length(len(audio), from_rate, to_rate)
    out = np.asarray(soxr.resample(audio, from_rate, to_rate, quality="HQ"), dtype=np.float32)
    if len(out) < length:
        last = out[-1] if len(out) else (audio.mean(dtype=np.float64) if len(audio) else 0.0)
        out = np.concatenate([out, np.full(length - len(out), last, dtype=np.float32)])
    return np.ascontiguousarray(out[:length])


def load_audio(
    path: str | Path,
    *,
    sample_rate: int | None,
    offset: float = 0.0,
    duration: float | None = None,
) -> NDArray[np.float32]:
    """Decode a file, or a segment of it, to mono float32 in [-1, 1] of shape ``(n,)``.

    Channels are averaged, then the signal is resampled. Only the segment is decoded.

    Args:
        path: audio file.
        sample_rate: rate of the result in Hz; None keeps the file's own.
        offset: start of the segment in seconds.
        duration: length of the segment in seconds; None reads to the end of the file. An end up
            to :data:`END_TOLERANCE` behind the file's is cut there; the result is never longer
            than asked for.

    Raises:
        DataError: the file is missing, empty, not audio or truncated; the segment lies outside
            the file; or samples are NaN or infinite.
    """
    if sample_rate is not None and sample_rate <= 0:
        raise DataError(f"sample_rate must be positive, got {sample_rate}.")
    with open_audio(path) as file:
        start, count = _segment_frames(path, info_of(file), offset, duration)
        samples = read_frames(file, path, start, count)
        source_rate = int(file.samplerate)
    mono = to_mono(samples)
    if not np.isfinite(mono).all():
        bad = int(np.count_nonzero(~np.isfinite(mono)))
        raise DataError(
            f"{path}: {bad} of {len(mono)} samples are NaN or infinite. Re-export the file or "
            "remove the row."
        )
    return resample(mono, source_rate, sample_rate or source_rate)


def read_frames(file: Any, path: str | Path, start: int, count: int | None) -> NDArray[np.float32]:
    """Read ``count`` frames (None: all that remain) from frame ``start`` as ``(frames, channels)``.

    Raises:
        DataError: seeking or decoding fails, or fewer frames come than the header promises.
    """
    import soundfile

    try:
        if start:
            _skip_to(file, start)
        samples = _read_some(file, count)
    except (soundfile.SoundFileError, RuntimeError) as error:
        raise DataError(
            f"{path}: decoding fails at frame {start} or later ({_reason(error)}). The file is "
            "truncated or damaged; restore it or remove the row."
        ) from error
    allowed = MP3_TOLERANCE_FRAMES if file.format == "MP3" else 0
    if count is not None and len(samples) + allowed < count:
        raise DataError(
            f"{path}: truncated: the header promises {count} frames from frame {start}, but only "
            f"{len(samples)} can be decoded. Restore the file or remove the row."
        )
    if len(samples) == 0:
        raise DataError(f"{path}: holds no samples. Remove the row.")
    return samples


def _skip_to(file: Any, start: int) -> None:
    if file.seekable():
        file.seek(start)
        return
    while start > 0 and (skipped := len(_read(file, min(start, _BLOCK_FRAMES)))):
        start -= skipped


def _read(file: Any, count: int) -> NDArray[np.float32]:
    samples: NDArray[np.float32] = file.read(count, dtype="float32", always_2d=True)
    return samples


def _read_some(file: Any, count: int | None) -> NDArray[np.float32]:
    """Read ``count`` frames, or to the end where it is None; fewer where the file ends before."""
    if count is not None and count <= _TRUSTED_FRAMES:
        return _read(file, count)
    blocks: list[NDArray[np.float32]] = []
    left = math.inf if count is None else count
    while left > 0:
        wanted = int(min(left, _BLOCK_FRAMES))
        blocks.append(_read(file, wanted))
        if len(blocks[-1]) < wanted:
            break
        left -= wanted
    return np.concatenate(blocks)


def extended(audio: NDArray[np.float32], samples: int) -> NDArray[np.float32]:
    """Audio of at least so many samples, with silence behind it where it was shorter."""
    missing = samples - len(audio)
    if missing <= 0:
        return audio
    return np.concatenate([audio, np.zeros(missing, dtype=np.float32)])


def to_mono(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average channels: ``(frames, channels)`` to contiguous float32 ``(frames,)``."""
    if samples.shape[1] == 1:
        return np.ascontiguousarray(samples[:, 0])
    return np.ascontiguousarray(samples.mean(axis=1, dtype=np.float32))


def _segment_frames(
    path: str | Path, info: AudioInfo, offset: float, duration: float | None
) -> tuple[int, int | None]:
    """First frame and number of frames (None: all) of a segment; validates it against the file."""
    if not (math.isfinite(offset) and offset >= 0):
        raise DataError(f"{path}: offset must be a finite number of seconds >= 0, got {offset}.")
    if duration is not None and not (math.isfinite(duration) and duration > 0):
        raise DataError(f"{path}: duration must be a finite number of seconds > 0, got {duration}.")
    rate, frames = info.sample_rate, info.frames
    start = round(offset * rate)
    if frames < 0:
        return start, None if duration is None else round(duration * rate)
    if frames == 0:
        raise DataError(f"{path}: holds no samples. Remove the row.")
    if start >= frames:
        raise DataError(
            f"{path}: offset {offset:g} s lies at or past the end of the file "
            f"({info.duration:.3f} s). Correct offset in the manifest."
        )
    if duration is None:
        return start, frames - start
    stop = round((offset + duration) * rate)
    if stop - frames > END_TOLERANCE * rate:
        raise DataError(
            f"{path}: the segment ends at {offset + duration:.3f} s, but the file at "
            f"{info.duration:.3f} s. Correct offset and duration in the manifest "
            "(`voicehub data check` lists every such row)."
        )
    return start, max(1, min(stop, frames) - start)


def _reason(error: BaseException) -> str:
    """What libsndfile says, without the path that it repeats."""
    text = getattr(error, "error_string", None) or str(error)
    if "not a regular file" in text:
        # Its word for an MP3 without a frame; whoever calls has seen the file.
        return "no audio stream found"
    return text.removeprefix("Error : ").rstrip(". ") or type(error).__name__
