"""What every vocoder is: log-mel frames in, a waveform out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from voicehub.errors import ConfigurationError, DataError
from voicehub_flow.mel import MelSettings

#: What the frames must agree on. Padding and floor are left out: they move a frame by less than
#: a hop, or silence by what nobody hears, and published pairs of models differ in them.
COMPARED = (
    "sample_rate",
    "n_fft",
    "hop_length",
    "win_length",
    "n_mels",
    "f_min",
    "f_max",
    "scale",
    "norm",
    "power",
)


class Vocoder(ABC):
    """Turns log-mel frames into a waveform.

    Attributes:
        name: As settings name it.
        sampling_rate: Hz of the waveform.
        known: What is known of the mel frames that it reads, by the names of ``MelSettings``.
        unstated: Names of ``COMPARED`` that neither its directory nor the settings say.
    """

    name: ClassVar[str]
    sampling_rate: int
    known: Mapping[str, Any]

    @property
    def unstated(self) -> tuple[str, ...]:
        """Settings that could not be compared with the model's."""
        return tuple(name for name in COMPARED if name not in self.known)

    def __call__(self, log_mel: Tensor) -> Tensor:
        """Speak frames.

        Args:
            log_mel: float (frames, n_mels), natural logarithms, as ``MelSettings`` says.

        Returns:
            float32 (samples,) within [-1, 1], on the device of the frames.

        Raises:
            DataError: the frames have another shape, are none, or are not finite.
        """
        if log_mel.dim() != 2 or log_mel.shape[1] != self.known["n_mels"] or not len(log_mel):
            raise DataError(
                f"the vocoder {self.name!r} reads log-mel frames (frames, "
                f"{self.known['n_mels']}), got {tuple(log_mel.shape)}."
            )
        if not bool(log_mel.isfinite().all()):
            raise DataError(f"the vocoder {self.name!r} got frames that are not finite.")
        return self._speak(log_mel.float()).float().clamp(-1.0, 1.0)

    @abstractmethod
    def _speak(self, log_mel: Tensor) -> Tensor:
        """Waveform (samples,) of float32 (frames, n_mels)."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What it is, as JSON values: for manifests and reports."""


def require_same_mel(vocoder: Vocoder, mel: MelSettings) -> None:
    """Refuse a vocoder that reads other frames than the model emits.

    Raises:
        ConfigurationError: names every setting in which they differ, with both values.
    """
    own = mel.resolved
    wrong = [
        f"{name}: model {own[name]!r}, vocoder {vocoder.known[name]!r}"
        for name in COMPARED
        if name in vocoder.known and not _same(own[name], vocoder.known[name])
    ]
    if wrong:
        raise ConfigurationError(
            f"The vocoder {vocoder.name!r} ({vocoder.describe().get('path', 'built in')}) reads "
            f"other mel frames than the model emits: {'; '.join(wrong)}. Choose a vocoder that was "
            "trained on such frames, or set the model's mel settings to the vocoder's and train it "
            "on them."
        )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    return abs(float(one) - float(other)) <= 1e-6 * max(1.0, abs(float(one)))
