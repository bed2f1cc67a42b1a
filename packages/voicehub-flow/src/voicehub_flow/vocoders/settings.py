"""The ``vocoder`` section of a configuration."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.models.assets import Asset
from voicehub_data.config.base import DataModel

VocoderName = Literal["griffin-lim", "vocos", "bigvgan", "hifigan"]


class VocoderSettings(DataModel):
    """Which vocoder speaks the frames.

    Attributes:
        name: ``griffin-lim`` is built in; the others are read from a directory.
        path: The directory: ``vocos`` with ``config.yaml``, ``bigvgan`` and ``hifigan`` with
            ``config.json``, and weights beside it.
        iterations, momentum, seed: Of Griffin-Lim.
        mel: Settings of the vocoder's mel frames, by the names of ``MelSettings``, that its
            directory does not say itself. One that contradicts the directory is an error.
    """

    name: VocoderName = "griffin-lim"
    path: str | None = None
    iterations: int = Field(default=32, ge=1)
    momentum: float = Field(default=0.99, ge=0, lt=1)
    seed: int = Field(default=0, ge=0)
    mel: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.name == "griffin-lim":
            if self.path is not None or self.mel:
                raise ValueError(
                    "griffin-lim is built in and reads the model's own mel frames: leave out path "
                    "and mel, or name another vocoder"
                )
        elif self.path is None:
            raise ValueError(f"the vocoder {self.name!r} needs path, its directory")
        return self

    def assets(self, setting: str) -> list[Asset]:
        """What it names outside the configuration."""
        if self.path is None:
            return []
        return [Asset(f"{setting}.path", self.path, kind="file")]
