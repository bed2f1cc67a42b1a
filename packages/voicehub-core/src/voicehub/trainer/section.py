"""What the sections of a family's configuration are made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of a configuration; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())
