"""Audio that a caller hands over: a file, or samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.errors import DataError
from voicehub_data.audio import load_audio

if TYPE_CHECKING:
    from numpy.typing import NDArray


def given_audio(given: str | Path | np.ndarray[Any, Any], sample_rate: int) -> NDArray[np.float32]:
    """Return mono float32 samples (n,) of a file, which is resampled, or of an array at that rate.

    Args:
        given: path, or samples (n,) in [-1, 1].
        sample_rate: Hz.

    Raises:
        DataError: the file cannot be decoded, or the array is not mono, empty or not finite.
    """
    if isinstance(given, np.ndarray):
        return mono_samples(given, "audio array", f" at {sample_rate} Hz")
    return load_audio(given, sample_rate=sample_rate)


def mono_samples(given: Any, name: str, rate: str = "") -> NDArray[np.float32]:
    """Return samples as contiguous float32 (n,).

    Args:
        given: anything that NumPy reads.
        name: what it is called in messages.
        rate: said of the samples that were expected, such as ``" at 16000 Hz"``.

    Raises:
        DataError: they are not mono, empty or not finite.
    """
    samples: NDArray[np.float32] = np.ascontiguousarray(given, dtype=np.float32)
    if samples.ndim != 1 or len(samples) == 0 or not np.isfinite(samples).all():
        raise DataError(
            f"{name} of shape {samples.shape}: expected finite mono samples (n,){rate}, n > 0."
        )
    return samples
