"""Mel frames of rows, kept on disk by the hash of all that they are made of."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub_data.audio import load_audio
from voicehub_data.manifest import ManifestRow
from voicehub_flow.mel import MelSettings

#: Raise it when the same settings make other frames.
_VERSION = 1


class MelReader:
    """Reads the audio of rows as log-mel frames.

    Args:
        mel: settings.
        cache: folder that frames are kept in; None keeps none.
    """

    def __init__(self, mel: MelSettings, cache: str | Path | None = None) -> None:
        self.mel = mel
        self.cache = None if cache is None else Path(cache).expanduser()
        self._features = mel.build()

    def __call__(self, row: ManifestRow) -> Tensor:
        """Return float32 (frames, n_mels).

        Raises:
            DataError: the audio cannot be decoded, or is too short for a frame.
        """
        if self.cache is None:
            return self._made(row)
        path = self.cache / f"{self.key(row)}.safetensors"
        kept = _read(path)
        if kept is None:
            kept = self._made(row)
            _write(path, kept)
        return kept

    def key(self, row: ManifestRow) -> str:
        """Hash (hex) of the file's content, the segment and the settings."""
        digest = hashlib.sha256(row.audio_filepath.read_bytes())
        segment = (row.offset, row.duration)
        digest.update(json.dumps([segment, self.settings()], sort_keys=True).encode())
        return digest.hexdigest()

    def settings(self) -> dict[str, Any]:
        """JSON that changes when frames would."""
        return {"version": _VERSION, **self.mel.resolved}

    def frames(self, audio: Tensor) -> Tensor:
        """Log-mel frames (frames, n_mels) of samples at the model's rate."""
        with torch.no_grad():
            made: Tensor = self._features(audio.float())
        return made

    def _made(self, row: ManifestRow) -> Tensor:
        rate = self.mel.sample_rate
        try:
            audio = load_audio(
                row.audio_filepath, sample_rate=rate, offset=row.offset, duration=row.duration
            )
        except DataError as error:
            raise DataError(f"{row.location}: {error}") from error
        # Centred frames: half a window is enough for reflection, and nothing shorter is speech.
        if len(audio) <= self.mel.n_fft // 2:
            raise DataError(
                f"{row.location}: {len(audio) / rate:.3f} s are less than half an FFT of "
                f"{self.mel.n_fft} samples at {rate} Hz; drop the row (data.filters.min_duration)."
            )
        return self.frames(torch.from_numpy(audio))


def _read(path: Path) -> Tensor | None:
    """Frames of the cache; None where they are absent or damaged, so that they are made again."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)["mel"]
    except (FileNotFoundError, SafetensorError, KeyError):
        return None


def _write(path: Path, frames: Tensor) -> None:
    """In one step: workers may write the same clip at once."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    save_file({"mel": frames.contiguous()}, temporary)
    temporary.replace(path)
