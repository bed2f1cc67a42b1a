"""Audio of a row as the model takes it: rate, silence, level, whole frames, spectrogram."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub_data.clip_cache import ClipCache, clip_key
from voicehub_data.manifest import ManifestRow
from voicehub_data.row_audio import load_row
from voicehub_data.speech_level import set_speech_level, trim_silence
from voicehub_vits.acoustic import AcousticConfig
from voicehub_vits.features import Spectrogram

#: Raise it when the same settings prepare audio differently.
_VERSION = 1


class Prepared(NamedTuple):
    """One clip.

    Attributes:
        audio: float32 (frames * hop_length,).
        spectrogram: magnitudes, float32 (bins, frames).
    """

    audio: Tensor
    spectrogram: Tensor

    @property
    def frames(self) -> int:
        """Number of frames."""
        return int(self.spectrogram.shape[1])


class AudioPreparation:
    """Prepares clips, and keeps them on disk by the hash of all that they are made of.

    Args:
        acoustic: features.
        trim: cut silence at both ends.
        trim_threshold_db, trim_margin: see :func:`voicehub_data.speech_level.trim_silence`.
        loudness: level of the speech in dBFS; None leaves it.
        cache: directory for prepared clips; None keeps none.
    """

    def __init__(
        self,
        acoustic: AcousticConfig,
        *,
        trim: bool = True,
        trim_threshold_db: float = 40.0,
        trim_margin: float = 0.05,
        loudness: float | None = None,
        cache: str | Path | None = None,
    ) -> None:
        self.acoustic = acoustic
        self.trim = trim
        self.trim_threshold_db = trim_threshold_db
        self.trim_margin = trim_margin
        self.loudness = loudness
        self.cache = ClipCache(cache)
        self._spectrogram = Spectrogram(acoustic)

    def __call__(self, row: ManifestRow) -> Prepared:
        """Prepare the audio of a row.

        Raises:
            DataError: the audio cannot be decoded, or is too short for one FFT.
        """
        kept = self.cache.get(row, self.settings(), lambda: self._prepare(row)._asdict())
        return Prepared(kept["audio"], kept["spectrogram"])

    def key(self, row: ManifestRow) -> str:
        """Hash (hex) of the file's content, the segment and the settings."""
        return clip_key(row, self.settings())

    def settings(self) -> Mapping[str, Any]:
        """JSON that changes when prepared clips would."""
        used = self.acoustic
        return {
            "version": _VERSION,
            "sampling_rate": used.sampling_rate,
            "fft": [used.filter_length, used.hop_length, used.win_length],
            "trim": [self.trim_threshold_db, self.trim_margin] if self.trim else None,
            "loudness": self.loudness,
        }

    def _prepare(self, row: ManifestRow) -> Prepared:
        rate = self.acoustic.sampling_rate
        audio = load_row(row, rate)
        if self.trim:
            audio = trim_silence(
                audio, rate, threshold_db=self.trim_threshold_db, margin=self.trim_margin
            )
        if self.loudness is not None:
            audio = set_speech_level(audio, rate, self.loudness)
        frames = len(audio) // self.acoustic.hop_length
        wave = torch.from_numpy(audio[: frames * self.acoustic.hop_length].copy())
        if len(wave) <= self.acoustic.filter_length // 2:
            raise DataError(
                f"{row.location}: {len(wave) / rate:.3f} s remain of the clip, less than half an "
                f"FFT of {self.acoustic.filter_length} samples at {rate} Hz; drop the row."
            )
        with torch.no_grad():
            spectrogram = self._spectrogram.linear(wave[None])[0]
        return Prepared(wave, spectrogram)
