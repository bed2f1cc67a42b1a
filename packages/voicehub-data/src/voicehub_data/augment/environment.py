"""Noise and reverberation from folders of recordings."""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.audio import AUDIO_SUFFIXES, audio_info, load_audio, resampled_length
from voicehub_data.augment.base import Augmentation
from voicehub_data.augment.signal import ordered_range

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Segments of noise that are digital silence are drawn again this many times at most.
_NOISE_DRAWS = 10


class RecordingFolder:
    """Audio files below a folder, in a fixed order that does not depend on where it lies.

    Raises:
        ConfigurationError: the folder is missing or holds no audio.
    """

    def __init__(self, folder: str | Path, owner: str) -> None:
        root = Path(folder).expanduser().absolute()
        if not root.is_dir():
            raise ConfigurationError(f"{owner}: folder {root} does not exist.")
        found = [
            path
            for path in root.rglob("*")
            if path.suffix.lower() in AUDIO_SUFFIXES and path.is_file()
        ]
        if not found:
            raise ConfigurationError(f"{owner}: folder {root} holds no audio files.")
        self.root = root
        self.paths = sorted(found, key=lambda path: path.relative_to(root).as_posix())

    def fingerprint(self) -> str:
        """SHA-256 (hex) of names and sizes: another set of files is another augmentation."""
        digest = hashlib.sha256()
        for path in self.paths:
            name = path.relative_to(self.root).as_posix()
            digest.update(f"{name}\0{path.stat().st_size}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def draw(self, generator: np.random.Generator) -> Path:
        return self.paths[int(generator.integers(len(self.paths)))]


class Noise(Augmentation):
    """Add a recording at a signal-to-noise ratio uniform in ``snr`` decibels.

    The ratio is of mean powers over the whole clip, so the measured one is the drawn one. A clip
    that is digital silence has no such ratio and passes unchanged. Only as much of the noise file
    as the clip is long is decoded; a shorter file is repeated.
    """

    def __init__(
        self,
        folder: str | Path,
        snr: tuple[float, float] = (5.0, 20.0),
        *,
        probability: float = 0.5,
        name: str = "noise",
    ) -> None:
        super().__init__(probability, name)
        self.snr = ordered_range(snr, f"{name}: snr")
        self.recordings = RecordingFolder(folder, name)

    def _transform(
        self, x: NDArray[np.float32], sample_rate: int, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        snr = generator.uniform(*self.snr)
        power = mean_power(x)
        if power == 0.0:
            return x
        for _ in range(_NOISE_DRAWS):
            path = self.recordings.draw(generator)
            noise = noise_segment(path, len(x), sample_rate, generator.random())
            noise_power = mean_power(noise)
            if noise_power > 0.0:
                scale = math.sqrt(power / noise_power * 10.0 ** (-snr / 10.0))
                return x + np.float32(scale) * noise
        raise DataError(
            f"{self.name}: {_NOISE_DRAWS} segments drawn from {self.recordings.root} were digital "
            f"silence, the last from {path}. Remove silent files from the folder."
        )

    def _settings(self) -> dict[str, Any]:
        files = self.recordings.fingerprint()
        return {**super()._settings(), "snr": list(self.snr), "files_sha256": files}


class Reverb(Augmentation):
    """Convolve with a room impulse response drawn from a folder.

    The response is shifted so that its peak, the direct path, keeps the clip in place; length and
    mean power are those of the input.
    """

    def __init__(
        self, folder: str | Path, *, probability: float = 0.5, name: str = "reverb"
    ) -> None:
        super().__init__(probability, name)
        self.recordings = RecordingFolder(folder, name)

    def _transform(
        self, x: NDArray[np.float32], sample_rate: int, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        response = _impulse_response(self.recordings.draw(generator), sample_rate)
        power = mean_power(x)
        if power == 0.0:
            return x
        peak = int(np.argmax(np.abs(response)))
        wet = convolve(x, response)[peak : peak + len(x)]
        scaled = wet * math.sqrt(power / mean_power(wet))
        return np.asarray(scaled, dtype=np.float32)

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "files_sha256": self.recordings.fingerprint()}


def mean_power(x: NDArray[np.floating[Any]]) -> float:
    """Mean of squares, in float64."""
    wide = x.astype(np.float64)
    return float(np.dot(wide, wide) / max(1, len(wide)))


def convolve(x: NDArray[np.float32], response: NDArray[np.float32]) -> NDArray[np.float64]:
    """Full linear convolution, ``len(x) + len(response) - 1`` samples, by FFT in float64."""
    length = len(x) + len(response) - 1
    size = 1 << (length - 1).bit_length()
    spectrum = np.fft.rfft(x.astype(np.float64), size)
    spectrum *= np.fft.rfft(response.astype(np.float64), size)
    return np.asarray(np.fft.irfft(spectrum, size)[:length], dtype=np.float64)


def noise_segment(
    path: Path, length: int, sample_rate: int, position: float
) -> NDArray[np.float32]:
    """``length`` samples at ``sample_rate`` from a random place (``position`` in [0, 1))."""
    info = audio_info(path)
    # A few samples more than needed: both ends of the segment are rounded to whole frames.
    needed = (length + 2) / sample_rate
    room = info.duration - needed
    if info.frames < 0 or room <= 0 or resampled_length(info.frames, info.sample_rate, 1) == 0:
        whole = load_audio(path, sample_rate=sample_rate)
        shift = int(position * len(whole))
        return np.resize(np.roll(whole, -shift), length)
    start = load_audio(path, sample_rate=sample_rate, offset=position * room, duration=needed)
    return np.resize(start, length)


@lru_cache(maxsize=64)
def _impulse_response(path: Path, sample_rate: int) -> NDArray[np.float32]:
    response = load_audio(path, sample_rate=sample_rate)
    if not response.any():
        raise DataError(f"{path}: the impulse response is digital silence; remove the file.")
    response.flags.writeable = False
    return response
