"""The built-in vocoder: phases by Griffin-Lim. No weights, intelligible, a little metallic."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from voicehub_data.features import griffin_lim, mel_to_magnitude
from voicehub_flow.mel import MelSettings
from voicehub_flow.vocoders.base import Vocoder


class GriffinLimVocoder(Vocoder):
    """Mel energies to magnitudes by least squares, then phases by alternating projections.

    Args:
        mel: the model's settings; the vocoder takes them as its own.
        iterations, momentum, seed: see :func:`voicehub_data.features.griffin_lim`.
    """

    name = "griffin-lim"

    def __init__(
        self, mel: MelSettings, *, iterations: int = 32, momentum: float = 0.99, seed: int = 0
    ) -> None:
        self.known = mel.resolved
        self.sampling_rate = mel.sample_rate
        self._options: dict[str, Any] = {
            "iterations": iterations,
            "momentum": momentum,
            "seed": seed,
        }
        self._features = mel.build()

    def _speak(self, log_mel: Tensor) -> Tensor:
        features = self._features.to(log_mel.device)
        magnitude = mel_to_magnitude(log_mel.exp(), features.filterbank, power=features.power)
        length = max(1, len(log_mel) - 1) * features.hop_length
        return griffin_lim(
            magnitude,
            features.n_fft,
            features.hop_length,
            features.window,
            length=length,
            **self._options,
        )

    def describe(self) -> dict[str, Any]:
        """Its name and options."""
        return {"name": self.name, **self._options}
