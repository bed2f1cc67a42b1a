"""Audio of a row as the model takes it: rate, silence, level, whole frames, spectrogram."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub_data.audio import load_audio
from voicehub_data.manifest import ManifestRow
from voicehub_data.speech_level import set_speech_level, trim_silence
from voicehub_vits.acoustic import AcousticConfig
from voicehub_vits.features import Spectrogram

#: Raise it when the same settings prepare audio differently.
_VERSION = 1
_BLOCK = 1 << 20


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
        self.cache = None if cache is None else Path(cache).expanduser()
        self._spectrogram = Spectrogram(acoustic)

    def __call__(self, row: ManifestRow) -> Prepared:
        """Prepare the audio of a row.

        Raises:
            DataError: the audio cannot be decoded, or is too short for one FFT.
        """
        if self.cache is None:
            return self._prepare(row)
        path = self.cache / f"{self.key(row)}.safetensors"
        kept = _read(path)
        if kept is None:
            kept = self._prepare(row)
            _write(path, kept)
        return kept

    def key(self, row: ManifestRow) -> str:
        """Hash (hex) of the file's content, the segment and the settings."""
        digest = hashlib.sha256()
        with row.audio_filepath.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        segment = (row.offset, row.duration)
        digest.update(json.dumps([segment, self.settings()], sort_keys=True).encode())
        return digest.hexdigest()

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
        try:
            audio = load_audio(
                row.audio_filepath, sample_rate=rate, offset=row.offset, duration=row.duration
            )
        except DataError as error:
            raise DataError(f"{row.location}: {error}") from error
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


def _read(path: Path) -> Prepared | None:
    """A clip of the cache; None where it is absent or damaged, so that it is made again."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        kept = load_file(path)
        return Prepared(kept["audio"], kept["spectrogram"])
    except (FileNotFoundError, SafetensorError, KeyError):
        return None


def _write(path: Path, prepared: Prepared) -> None:
    """In one step: workers may write the same clip at once."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    tensors = {name: value.contiguous() for name, value in prepared._asdict().items()}
    save_file(tensors, temporary)
    temporary.replace(path)
