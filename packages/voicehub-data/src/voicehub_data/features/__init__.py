"""Features with torch: STFT, mel filterbanks, log-mel, Griffin-Lim."""

from __future__ import annotations

from voicehub_data.features.griffin_lim import griffin_lim, mel_to_magnitude
from voicehub_data.features.log_mel import LogMel
from voicehub_data.features.mel import hz_to_mel, mel_filterbank, mel_to_hz
from voicehub_data.features.stft import istft, num_frames, stft

__all__ = [
    "LogMel",
    "griffin_lim",
    "hz_to_mel",
    "istft",
    "mel_filterbank",
    "mel_to_hz",
    "mel_to_magnitude",
    "num_frames",
    "stft",
]
