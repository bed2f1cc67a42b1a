"""The mel spectrogram that a model emits and a vocoder reads: one set of settings for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub_data.config.base import DataModel

if TYPE_CHECKING:
    from voicehub_data.features import LogMel


class MelSettings(DataModel):
    """Natural logarithms of mel energies, as :class:`voicehub_data.features.LogMel` makes them.

    The defaults are those of the published 24 kHz models in the F5 style and of their vocoder
    (Vocos): magnitudes, HTK mels without area normalisation, floor 1e-5.

    Attributes:
        sample_rate: Hz.
        n_fft, hop_length: samples.
        win_length: samples of the Hann window; None is ``n_fft``.
        n_mels: bins.
        f_min, f_max: Hz; ``f_max`` None is half the sampling rate.
        scale, norm: of the filters.
        power: 1 for magnitudes, 2 for power.
        log_floor: smallest energy under the logarithm.
        pad_mode: what the ends of a clip are padded with.
    """

    sample_rate: int = Field(default=24000, gt=0)
    n_fft: int = Field(default=1024, gt=0)
    hop_length: int = Field(default=256, gt=0)
    win_length: int | None = Field(default=None, gt=0)
    n_mels: int = Field(default=100, gt=0)
    f_min: float = Field(default=0.0, ge=0)
    f_max: float | None = Field(default=None, gt=0)
    scale: Literal["htk", "slaney"] = "htk"
    norm: Literal["none", "slaney"] = "none"
    power: float = Field(default=1.0, gt=0)
    log_floor: float = Field(default=1e-5, gt=0)
    pad_mode: Literal["constant", "reflect"] = "constant"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        window = self.win_length or self.n_fft
        if window > self.n_fft:
            raise ValueError(f"win_length {window} is over n_fft {self.n_fft}")
        if self.hop_length > window:
            raise ValueError(
                f"hop_length {self.hop_length} is over the window of {window} samples: what lies "
                "between two windows would be heard by none"
            )
        top = self.sample_rate / 2 if self.f_max is None else self.f_max
        if not self.f_min < top <= self.sample_rate / 2:
            raise ValueError(
                f"expected f_min < f_max <= {self.sample_rate / 2:g} Hz (half the sampling rate), "
                f"got {self.f_min:g} and {top:g}"
            )
        return self

    @property
    def resolved(self) -> dict[str, Any]:
        """The settings with ``win_length`` and ``f_max`` as numbers."""
        return {
            **self.model_dump(mode="json"),
            "win_length": self.win_length or self.n_fft,
            "f_max": self.sample_rate / 2 if self.f_max is None else self.f_max,
        }

    def build(self) -> LogMel:
        """The features: ``(samples,)`` to ``(frames, n_mels)``."""
        from voicehub_data.features import LogMel

        return LogMel(
            self.sample_rate,
            self.n_fft,
            self.hop_length,
            self.n_mels,
            win_length=self.win_length,
            f_min=self.f_min,
            f_max=self.f_max,
            scale=self.scale,
            norm=self.norm,
            power=self.power,
            log_floor=self.log_floor,
            pad_mode=self.pad_mode,
        )
