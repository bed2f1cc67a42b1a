"""Mel frames of rows, kept on disk by the hash of all that they are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub_data.clip_cache import ClipCache
from voicehub_data.manifest import ManifestRow
from voicehub_data.row_audio import load_row
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
        self.cache = ClipCache(cache)
        self._features = mel.build()

    def __call__(self, row: ManifestRow) -> Tensor:
        """Return float32 (frames, n_mels).

        Raises:
            DataError: the audio cannot be decoded, or is too short for a frame.
        """
        return self.cache.get(row, self.settings(), lambda: {"mel": self._made(row)})["mel"]

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
        audio = load_row(row, rate)
        # Centred frames: half a window is enough for reflection, and nothing shorter is speech.
        if len(audio) <= self.mel.n_fft // 2:
            raise DataError(
                f"{row.location}: {len(audio) / rate:.3f} s are less than half an FFT of "
                f"{self.mel.n_fft} samples at {rate} Hz; drop the row (data.filters.min_duration)."
            )
        return self.frames(torch.from_numpy(audio))
