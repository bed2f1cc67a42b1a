"""Child process that speaks a list of utterances: ``python -m voicehub_data.synthetic.speak``.

A process of its own because espeak-ng's samples depend on everything said before in the same
process; a fresh one that says a fixed list in order makes the same bytes every time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from voicehub.errors import VoiceHubError
from voicehub_data.synthetic.espeak import Espeak
from voicehub_data.synthetic.voices import Voice

SAMPLE_RATE = 16_000
"""Sample rate in hertz of the files written."""


def to_corpus_rate(samples: NDArray[np.int16], rate: int, gain_db: float) -> NDArray[np.int16]:
    """Resample to ``SAMPLE_RATE`` and apply a gain.

    Args:
        samples: mono, int16, shape ``(n,)``.
        rate: their sample rate in hertz.
        gain_db: decibels at or under 0.

    Returns:
        Mono, int16, shape ``(round(n * SAMPLE_RATE / rate),)``. Where the resampling filter
        overshoots full scale, the clip is scaled down instead of clipped.
    """
    scaled = samples.astype(np.float64) / 32768.0 * 10.0 ** (gain_db / 20.0)
    resampled = soxr.resample(scaled, rate, SAMPLE_RATE)
    peak = float(np.abs(resampled).max(initial=0.0))
    if peak > 0.999:
        resampled = resampled * (0.999 / peak)
    rounded: NDArray[np.int16] = np.rint(resampled * 32767.0).astype(np.int16)
    return rounded


def speak_all(jobs: Iterable[dict[str, Any]], *, seed: int) -> Iterator[dict[str, Any]]:
    """Speak every job and write its file.

    Args:
        jobs: mappings with ``path, text, voice, rate, pitch, gain_db``.
        seed: of espeak-ng's own random numbers.

    Yields:
        ``{"frames": …}`` per job, in order, with the frames written; the first one also has
        ``version``, that of the library.
    """
    with Espeak(seed=seed) as espeak:
        first: dict[str, Any] = {"version": espeak.version}
        for job in jobs:
            voice = Voice(**job["voice"])
            samples = espeak.say(job["text"], voice, rate=job["rate"], pitch=job["pitch"])
            audio = to_corpus_rate(samples, espeak.sample_rate, job["gain_db"])
            path = Path(job["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, audio, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
            yield {"frames": len(audio), **first}
            first = {}


def main() -> int:
    """Read one JSON request from standard input, answer with one JSON line."""
    request = json.load(sys.stdin)
    try:
        answer: dict[str, Any] = {"spoken": list(speak_all(request["jobs"], seed=request["seed"]))}
    except (VoiceHubError, OSError, soundfile.LibsndfileError) as error:
        answer = {"error": str(error), "kind": type(error).__name__}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    raise SystemExit(main())
