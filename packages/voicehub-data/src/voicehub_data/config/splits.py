"""Which rows a run reads, and which of them it uses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from voicehub_data.config.base import DataModel
from voicehub_data.config.batches import FilterConfig
from voicehub_data.config.sources import DataSources, NamedDataSources


class SplitsConfig(DataModel):
    """What the data sections of all families begin with.

    Attributes:
        train: one source or several that are joined.
        eval: evaluation splits by name; nothing in them is filtered by default.
        filters: which training rows are left out.
        check: look at every audio file before training: ``headers`` alone, ``decode`` all of it,
            ``auto`` (decode up to two hours of audio) or ``none``.
        max_drop_fraction: stop when more than this share of a split is unusable.
        workers: threads that read audio files in the check.
    """

    train: DataSources
    eval: NamedDataSources = Field(default_factory=dict)
    filters: FilterConfig = Field(default_factory=FilterConfig)
    check: Literal["auto", "headers", "decode", "none"] = "auto"
    max_drop_fraction: float = Field(default=0.1, ge=0, le=1)
    workers: int = Field(default=2, ge=0)
