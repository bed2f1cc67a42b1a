from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from voicehub.trainer.run_config import RunConfig


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Gain(Section):
    kind: Literal["gain"]
    decibels: float = 3.0


class Noise(Section):
    kind: Literal["noise"]
    level: float = 0.1


class ToyModelConfig(Section):
    width: int = Field(default=4, ge=1)
    activation: Literal["linear", "tanh"] = "linear"


class ToyDataConfig(Section):
    train: str
    eval: dict[str, str] = {}
    scale: float = 1.0
    access_token: str = ""
    augment: list[Annotated[Gain | Noise, Field(discriminator="kind")]] = []


class ToyRunConfig(RunConfig):
    model: ToyModelConfig = ToyModelConfig()
    data: ToyDataConfig
