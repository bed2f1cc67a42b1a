"""Every setting of a run; a key that is not here is refused, with the nearest one named."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from voicehub.trainer.run_config import RunConfig


class ModelSettings(BaseModel):
    """Shape of the network."""

    model_config = ConfigDict(extra="forbid")

    bands: int = Field(default=20, ge=4, description="Mel bands.")
    channels: int = Field(default=32, ge=1)
    layers: int = Field(default=3, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)


class DataSettings(BaseModel):
    """What to train on: folders of WAV files, or synthetic sounds."""

    model_config = ConfigDict(extra="forbid")

    train: Path | None = Field(default=None, description="Folder of WAV files.")
    eval: Path | None = Field(default=None, description="Folder of WAV files.")
    clips: int = Field(default=64, ge=1, description="Synthetic training sounds.")
    noise: float = Field(default=0.1, ge=0, description="Standard deviation of the noise.")


class DenoiserRun(RunConfig):
    """A whole run."""

    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings()
