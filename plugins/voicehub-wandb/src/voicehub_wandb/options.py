"""Settings of the reporter: ``reporter_options={"wandb": {...}}``, or ``wandb_<name>``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class WandbOptions(BaseModel):
    """What is None is left to wandb, which reads its own environment variables."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    project: str | None = Field(default=None, description="Project of the run.")
    entity: str | None = Field(default=None, description="User or team.")
    group: str | None = Field(default=None, description="Group of runs that belong together.")
    tags: list[str] = Field(default_factory=list)
    notes: str | None = None
    mode: Literal["online", "offline", "disabled"] | None = None
    log_model: Literal["false", "checkpoint", "end"] = Field(
        default="false",
        description="'checkpoint' uploads every complete checkpoint, 'end' the final model once.",
    )

    @field_validator("tags", mode="before")
    @classmethod
    def _one_tag(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("log_model", mode="before")
    @classmethod
    def _flag(cls, value: Any) -> Any:
        return {True: "end", False: "false"}.get(value, value) if type(value) is bool else value
