"""Recordings in which nobody speaks, in place of some: a recogniser must also learn to be silent.

The label of such an item is empty, and it must reach the loss: it is what teaches a decoder to end
at once. Filters for empty transcripts work on manifests, before any of these is drawn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.data.keyed_random import SampleKey
from voicehub.errors import ConfigurationError
from voicehub_data.augment.base import draw_generator
from voicehub_data.augment.environment import RecordingFolder, mean_power, noise_segment
from voicehub_data.config import SilenceConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Of the draws without a recorded noise, so many are digital zeros.
_ZEROS = 0.1


class SilenceInjection:
    """Decides which draws become silence, and makes their audio.

    Noise is white, or (every second time, where there is a folder) a recorded one, at a level
    drawn uniformly in decibels relative to full scale.

    Args:
        rate: share of the draws, in [0, 1).
        level: lowest and highest root mean square, in dB of full scale.
        folder: recordings without speech; None for white noise alone.
    """

    name = "silence"

    def __init__(
        self, rate: float, level: tuple[float, float] = (-70.0, -35.0), folder: str | None = None
    ) -> None:
        low, high = level
        if not 0.0 <= rate < 1.0:
            raise ConfigurationError(f"silence: rate must lie in [0, 1), got {rate}.")
        if not (math.isfinite(low) and math.isfinite(high) and low <= high <= 0.0):
            raise ConfigurationError(
                f"silence: level is {level!r}; expected [low, high] in dB of full scale, at most 0."
            )
        self.rate = rate
        self.level = (float(low), float(high))
        self.recordings = None if folder is None else RecordingFolder(folder, self.name)

    def takes(self, key: SampleKey, sample_id: str) -> bool:
        """Whether this draw of a sample becomes silence; equal keys give equal answers."""
        return bool(draw_generator(key, sample_id, "silence-rate").random() < self.rate)

    def audio(
        self, samples: int, sample_rate: int, key: SampleKey, sample_id: str
    ) -> NDArray[np.float32]:
        """Return ``(samples,)`` float32 of noise, or of zeros."""
        generator = draw_generator(key, sample_id, self.name)
        recorded = self.recordings is not None and generator.random() < 0.5
        if not recorded and generator.random() < _ZEROS:
            return np.zeros(samples, dtype=np.float32)
        if recorded:
            assert self.recordings is not None
            path = self.recordings.draw(generator)
            noise = noise_segment(path, samples, sample_rate, generator.random())
        else:
            noise = generator.standard_normal(samples, dtype=np.float32)
        power = mean_power(noise)
        if power == 0.0:
            return np.zeros(samples, dtype=np.float32)
        wanted = 10.0 ** (generator.uniform(*self.level) / 20.0)
        return np.asarray(noise * (wanted / math.sqrt(power)), dtype=np.float32)

    def fingerprint(self) -> dict[str, Any]:
        """JSON that identifies the settings, for a run's record."""
        files = None if self.recordings is None else self.recordings.fingerprint()
        return {
            "transform": type(self).__name__,
            "rate": self.rate,
            "level": list(self.level),
            "files_sha256": files,
        }


def silence_injection(config: SilenceConfig) -> SilenceInjection | None:
    """The injection that is configured; None at rate 0."""
    if config.rate == 0.0:
        return None
    return SilenceInjection(config.rate, config.level, config.folder)
