"""Linear and mel spectrograms as VITS takes them, differentiable."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from voicehub_data.features import mel_filterbank, stft
from voicehub_vits.acoustic import AcousticConfig

#: Added to the power before its square root, whose gradient at silence would be infinite.
_POWER_FLOOR = 1e-6
#: Smallest mel energy under the logarithm.
_LOG_FLOOR = 1e-5


class Spectrogram(nn.Module):
    """From audio to magnitudes, and on to log-mel.

    Frame t is centred at sample ``t * hop + hop / 2``: the audio is reflected by
    ``(filter_length - hop) / 2`` samples on both sides, so that n samples give ``n // hop``
    frames. Holds no parameters; runs in float32 at least, also under autocast.

    Args:
        acoustic: sizes.
    """

    window: Tensor
    filterbank: Tensor

    def __init__(self, acoustic: AcousticConfig) -> None:
        super().__init__()
        self.acoustic = acoustic
        window = torch.hann_window(acoustic.win_length, periodic=True, dtype=torch.float64)
        filters = mel_filterbank(
            acoustic.sampling_rate,
            acoustic.filter_length,
            acoustic.num_mel_channels,
            f_min=acoustic.mel_fmin,
            f_max=acoustic.mel_fmax,
        )
        # Kept in float64: a float64 model must not inherit rounded filters.
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("filterbank", torch.from_numpy(filters), persistent=False)

    def linear(self, audio: Tensor) -> Tensor:
        """Magnitude spectrogram.

        Args:
            audio: float ``(batch, samples)``, more than half an FFT long.

        Returns:
            float ``(batch, filter_length // 2 + 1, samples // hop_length)``.
        """
        acoustic = self.acoustic
        with torch.autocast(audio.device.type, enabled=False):
            wide = audio if audio.dtype == torch.float64 else audio.float()
            side = (acoustic.filter_length - acoustic.hop_length) // 2
            padded = nn.functional.pad(wide[:, None], (side, side), mode="reflect")[:, 0]
            window = self.window.to(wide.dtype)
            spectrum = stft(
                padded, acoustic.filter_length, acoustic.hop_length, window, center=False
            )
            power = spectrum.real.square() + spectrum.imag.square()
            return (power + _POWER_FLOOR).sqrt().transpose(1, 2)

    def mel(self, linear: Tensor) -> Tensor:
        """Natural log of the mel energies of a magnitude spectrogram.

        Args:
            linear: float ``(batch, bins, frames)``.

        Returns:
            float ``(batch, num_mel_channels, frames)``.
        """
        with torch.autocast(linear.device.type, enabled=False):
            wide = linear if linear.dtype == torch.float64 else linear.float()
            return (self.filterbank.to(wide.dtype) @ wide).clamp(min=_LOG_FLOOR).log()

    def forward(self, audio: Tensor) -> Tensor:
        """Log-mel of audio ``(batch, samples)``: ``(batch, mels, frames)``."""
        return self.mel(self.linear(audio))
