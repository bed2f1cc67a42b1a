"""``training_acoustic_config``: what a VITS snapshot does not say about its own features.

An MMS or VITS directory holds the sampling rate and the number of spectrogram bins, and no FFT
size, hop, window, mel or segment. The full objective needs all of them, and they must be those
that the checkpoint was trained with; nothing here is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError, model_validator
from typing_extensions import Self

from voicehub.errors import ConfigurationError
from voicehub.trainer.section import Section
from voicehub.trainer.validation import explain_validation_error


class AcousticConfig(Section):
    """Spectrogram, mel and segment settings of the training objective.

    Attributes:
        sampling_rate: Hz.
        filter_length: FFT size; the posterior encoder reads ``filter_length // 2 + 1`` bins.
        hop_length: samples between frames; the product of the decoder's upsample rates.
        win_length: samples of the Hann window.
        num_mel_channels: bins of the mel loss.
        mel_fmin, mel_fmax: Hz; ``mel_fmax`` None is half the sampling rate.
        segment_size: samples of the slice that the decoder renders in training.
    """

    sampling_rate: int = Field(gt=0)
    filter_length: int = Field(gt=0)
    hop_length: int = Field(gt=0)
    win_length: int = Field(gt=0)
    num_mel_channels: int = Field(gt=0)
    mel_fmin: float = Field(default=0.0, ge=0)
    mel_fmax: float | None = Field(default=None, gt=0)
    segment_size: int = Field(default=8192, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.win_length > self.filter_length:
            raise ValueError(
                f"win_length {self.win_length} is over filter_length {self.filter_length}"
            )
        if self.hop_length > self.win_length:
            raise ValueError(
                f"hop_length {self.hop_length} is over win_length {self.win_length}: samples "
                "between two windows would be heard by none"
            )
        if (self.filter_length - self.hop_length) % 2:
            raise ValueError(
                f"filter_length - hop_length must be even, got {self.filter_length} - "
                f"{self.hop_length}"
            )
        if self.segment_size % self.hop_length:
            raise ValueError(
                f"segment_size {self.segment_size} is no multiple of hop_length {self.hop_length}"
            )
        top = self.sampling_rate / 2 if self.mel_fmax is None else self.mel_fmax
        if not self.mel_fmin < top <= self.sampling_rate / 2:
            raise ValueError(
                f"expected mel_fmin < mel_fmax <= {self.sampling_rate / 2:g} Hz (half the "
                f"sampling rate), got {self.mel_fmin:g} and {top:g}"
            )
        if self.num_mel_channels > self.filter_length // 2:
            raise ValueError(
                f"num_mel_channels {self.num_mel_channels} exceeds the FFT's "
                f"{self.filter_length // 2} bins"
            )
        return self

    @property
    def segment_frames(self) -> int:
        """Frames of a segment."""
        return self.segment_size // self.hop_length

    @property
    def spectrogram_bins(self) -> int:
        """Bins of the linear spectrogram."""
        return self.filter_length // 2 + 1


def read_acoustic_config(values: Mapping[str, Any] | AcousticConfig) -> AcousticConfig:
    """Validate a mapping given in Python.

    Raises:
        ConfigurationError: a key is unknown (the nearest is named), missing or out of range.
    """
    if isinstance(values, AcousticConfig):
        return values
    try:
        return AcousticConfig.model_validate(dict(values))
    except ValidationError as error:
        names = list(AcousticConfig.model_fields)
        raise ConfigurationError(
            explain_validation_error(error, names, "training_acoustic_config")
        ) from None


def check_against_model(acoustic: AcousticConfig, config: Any) -> None:
    """Compare the settings with a transformers ``VitsConfig``; needs no weights.

    Raises:
        ConfigurationError: sampling rate, hop or bins are not the model's.
    """
    rate = int(config.sampling_rate)
    if acoustic.sampling_rate != rate:
        raise ConfigurationError(
            f"training_acoustic_config.sampling_rate is {acoustic.sampling_rate} Hz, the model "
            f"works at {rate} Hz. Set it to {rate}: audio of any rate is resampled to it."
        )
    hop = math.prod(config.upsample_rates)
    if acoustic.hop_length != hop:
        rates = " x ".join(str(value) for value in config.upsample_rates)
        raise ConfigurationError(
            f"training_acoustic_config.hop_length is {acoustic.hop_length}, but the decoder's "
            f"upsample rates {rates} make {hop} samples of every frame. Set hop_length to {hop}."
        )
    if acoustic.spectrogram_bins != int(config.spectrogram_bins):
        fitting = 2 * (int(config.spectrogram_bins) - 1)
        raise ConfigurationError(
            f"training_acoustic_config.filter_length {acoustic.filter_length} gives "
            f"{acoustic.spectrogram_bins} spectrogram bins, the posterior encoder reads "
            f"{config.spectrogram_bins}. Set filter_length to {fitting}."
        )
