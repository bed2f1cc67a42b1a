"""Settings of low-rank adapters; imports neither torch nor transformers."""

from __future__ import annotations

from pydantic import Field

from voicehub.trainer.section import Section


class LoraConfig(Section):
    """Low-rank adapters, which train while the weights below them stay as they are.

    Attributes:
        rank, alpha, dropout: as in peft.
        target_modules: suffixes of module names; None takes query and value projections.
    """

    rank: int = Field(default=8, gt=0)
    alpha: float = Field(default=16, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: list[str] | None = None
