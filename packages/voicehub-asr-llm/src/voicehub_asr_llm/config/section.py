"""Base of this family's configuration sections."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())
