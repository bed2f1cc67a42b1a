"""Log-mel features with exact lengths, equal for a clip alone and in any batch."""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from voicehub.errors import ConfigurationError
from voicehub_data.features.mel import FilterNorm, MelScale, mel_filterbank
from voicehub_data.features.stft import PadMode, num_frames, stft

Normalize = Literal["none", "bin", "clip"]


class LogMel(nn.Module):
    """``log(max(mel power, floor))`` of windowed frames, optionally normalised over the clip.

    Holds no parameters and nothing in its state dict; runs in float32 at least, also under
    autocast.

    Args:
        sample_rate: Hz of the audio it will be given.
        n_fft, hop_length: samples; the defaults are 25 and 10 ms at 16 kHz.
        win_length: samples of the periodic Hann window; None is n_fft.
        n_mels: number of bins.
        f_min, f_max: Hz; f_max None is half the sample rate.
        scale, norm: of the filterbank, see :func:`~voicehub_data.features.mel.mel_filterbank`.
        power: 2 for power, 1 for magnitude spectra.
        log_floor: smallest value under the logarithm (natural).
        normalize: ``none``; ``bin``, mean 0 and deviation 1 of each bin over the clip's frames;
            ``clip``, of all cells of the clip together.
        center, pad_mode: see :func:`~voicehub_data.features.stft.stft`.
        preemphasis: a in x[t] - a x[t-1]; 0 is off.
    """

    window: Tensor
    filterbank: Tensor

    def __init__(
        self,
        sample_rate: int = 16000,
        n_fft: int = 400,
        hop_length: int = 160,
        n_mels: int = 80,
        *,
        win_length: int | None = None,
        f_min: float = 0.0,
        f_max: float | None = None,
        scale: MelScale = "slaney",
        norm: FilterNorm = "slaney",
        power: float = 2.0,
        log_floor: float = 1e-6,
        normalize: Normalize = "none",
        center: bool = True,
        pad_mode: PadMode = "constant",
        preemphasis: float = 0.0,
    ) -> None:
        super().__init__()
        if min(sample_rate, n_fft, hop_length, n_mels) <= 0 or log_floor <= 0 or power <= 0:
            raise ConfigurationError("LogMel: sizes, power and log_floor must be positive.")
        if normalize not in ("none", "bin", "clip"):
            raise ConfigurationError(f"LogMel: normalize is none, bin or clip, got {normalize!r}.")
        self.settings: dict[str, Any] = {
            "sample_rate": sample_rate, "n_fft": n_fft, "hop_length": hop_length, "n_mels": n_mels,
            "win_length": win_length or n_fft, "f_min": f_min, "f_max": f_max, "scale": scale,
            "norm": norm, "power": power, "log_floor": log_floor, "normalize": normalize,
            "center": center, "pad_mode": pad_mode, "preemphasis": preemphasis,
        }  # fmt: skip
        self.sample_rate = sample_rate
        self.n_fft = n_fft
        self.hop_length = hop_length
        self.n_mels = n_mels
        self.power = power
        self.log_floor = log_floor
        self.normalize = normalize
        self.center = center
        self.pad_mode: PadMode = pad_mode
        self.preemphasis = preemphasis
        window = torch.hann_window(win_length or n_fft, periodic=True, dtype=torch.float64)
        filters = mel_filterbank(
            sample_rate, n_fft, n_mels, f_min=f_min, f_max=f_max, scale=scale, norm=norm
        )
        self.register_buffer("window", window.float(), persistent=False)
        self.register_buffer("filterbank", torch.from_numpy(filters.T).float(), persistent=False)

    @overload
    def num_frames(self, samples: int) -> int: ...
    @overload
    def num_frames(self, samples: Tensor) -> Tensor: ...
    def num_frames(self, samples: int | Tensor) -> int | Tensor:
        """Frames for a number of samples (int, or int tensor of lengths): exact."""
        return num_frames(samples, self.n_fft, self.hop_length, center=self.center)

    def forward(self, audio: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Features of one clip or of a padded batch.

        Args:
            audio: float ``(samples,)`` or ``(batch, samples)``.
            lengths: int ``(batch,)``, valid samples of each row. What lies behind them is ignored,
                and frames from ``num_frames(lengths)`` on are 0.

        Returns:
            float ``(frames, n_mels)`` or ``(batch, frames, n_mels)``.

        Raises:
            ConfigurationError: lengths together with ``pad_mode="reflect"`` or with one clip.
        """
        if lengths is not None and (audio.dim() != 2 or self.pad_mode == "reflect"):
            raise ConfigurationError(
                "LogMel: lengths need audio (batch, samples) and pad_mode='constant', since "
                "reflection would depend on the padding."
            )
        with torch.autocast(audio.device.type, enabled=False):
            wide = audio if audio.dtype == torch.float64 else audio.float()
            if self.preemphasis:
                shifted = nn.functional.pad(wide[..., :-1], (1, 0))
                wide = wide - self.preemphasis * shifted
            if lengths is not None:
                # After the filter above, whose tail would else reach into the padding.
                positions = torch.arange(wide.shape[-1], device=wide.device)
                wide = wide.masked_fill(positions >= lengths.to(wide.device)[:, None], 0.0)
            features = self._log_mel(wide)
            return self._normalized(features, lengths)

    def _log_mel(self, audio: Tensor) -> Tensor:
        spectrum = stft(
            audio,
            self.n_fft,
            self.hop_length,
            self.window,
            center=self.center,
            pad_mode=self.pad_mode,
        )
        energy = spectrum.real.square() + spectrum.imag.square()
        if self.power != 2.0:
            energy = energy.clamp(min=1e-20).pow(self.power / 2.0)
        mel = energy @ self.filterbank.to(energy.dtype)
        return mel.clamp(min=self.log_floor).log()

    def _normalized(self, features: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is None:
            if self.normalize == "none" or features.numel() == 0:
                return features
            dims = (-2,) if self.normalize == "bin" else (-2, -1)
            mean = features.mean(dims, keepdim=True)
            variance = (features - mean).square().mean(dims, keepdim=True)
            return (features - mean) * (variance + 1e-5).rsqrt()
        frames = self.num_frames(lengths).to(features.device)
        positions = torch.arange(features.shape[-2], device=features.device)
        valid = (positions < frames[:, None])[..., None]
        features = features.masked_fill(~valid, 0.0)
        if self.normalize == "none":
            return features
        dims = (-2,) if self.normalize == "bin" else (-2, -1)
        cells = frames.clamp(min=1).to(features.dtype)[:, None, None]
        if self.normalize == "clip":
            cells = cells * self.n_mels
        mean = features.sum(dims, keepdim=True) / cells
        centred = (features - mean).masked_fill(~valid, 0.0)
        variance = centred.square().sum(dims, keepdim=True) / cells
        return centred * (variance + 1e-5).rsqrt()

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
