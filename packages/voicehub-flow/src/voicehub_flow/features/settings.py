"""What an extraction is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.errors import ConfigurationError
from voicehub_data.config.base import DataModel
from voicehub_flow.features.base import Kind

KINDS: tuple[Kind, ...] = ("audio", "text", "clip", "sync")
Precision = Literal["float32", "bfloat16", "float16"]


class ExtractionSettings(DataModel):
    """How recordings become clips of one length.

    Attributes:
        seconds: of every clip.
        min_seconds: shorter recordings are rejected; None asks for ``seconds``.
        short: ``reject``, or ``pad`` recordings shorter than ``seconds`` with silence, which is
            never trained on: the store notes how many frames are valid.
        max_segments: clips of a recording, one after the other.
        gain: clips are scaled to this peak; None leaves them as they are.
        silence: clips whose peak is under this are rejected.
        dtype: of the features on disk.
        shard_rows: recordings of one shard: what is lost at most when a run is interrupted.
    """

    seconds: float = Field(default=8.0, gt=0)
    min_seconds: float | None = Field(default=None, gt=0)
    short: Literal["reject", "pad"] = "reject"
    max_segments: int = Field(default=1, ge=1)
    gain: float | None = Field(default=0.95, gt=0, le=1)
    silence: float = Field(default=1e-6, ge=0)
    dtype: Precision = "float32"
    shard_rows: int = Field(default=64, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        least = self.least_seconds
        if self.short == "pad" and self.max_segments > 1:
            raise ValueError("short=pad makes one clip a recording; leave out max_segments")
        if self.short == "reject" and least < self.seconds:
            raise ValueError(
                f"min_seconds {least:g} is under seconds {self.seconds:g}, which short=reject "
                "needs; set short=pad"
            )
        return self

    @property
    def least_seconds(self) -> float:
        """Shorter recordings are rejected."""
        if self.min_seconds is not None:
            return self.min_seconds
        return self.seconds if self.short == "reject" else 0.0


@dataclass(frozen=True)
class ExtractorChoice:
    """An extractor as it was asked for.

    Attributes:
        name: in the registry.
        directory: what it reads.
        options: its settings.
    """

    name: str
    directory: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> ExtractorChoice:
        """Read ``NAME`` or ``NAME=DIRECTORY``."""
        name, separator, directory = text.partition("=")
        if separator and not directory:
            raise ConfigurationError(f"extractor {text!r}: expected NAME or NAME=DIRECTORY.")
        return cls(name.strip(), Path(directory).expanduser() if directory else None)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        place = None if self.directory is None else str(self.directory.resolve())
        return {"name": self.name, "directory": place, "options": dict(self.options)}


def choices(
    chosen: Mapping[Kind, str | None], options: Sequence[str]
) -> dict[Kind, ExtractorChoice]:
    """Choices of the command line with their options.

    Args:
        chosen: ``NAME`` or ``NAME=DIRECTORY`` by kind; None where there is none.
        options: ``KIND.KEY=VALUE`` each.

    Raises:
        ConfigurationError: an option is not of that form, or of a kind that is not extracted; or
            one of the two video features is chosen without the other.
    """
    import yaml

    given: dict[str, dict[str, Any]] = {}
    for text in options:
        key, separator, value = text.partition("=")
        kind, dot, name = key.partition(".")
        if not (separator and dot and name):
            raise ConfigurationError(f"--option {text!r}: expected KIND.KEY=VALUE.")
        if kind not in KINDS or chosen.get(kind) is None:
            known = ", ".join(kind for kind in KINDS if chosen.get(kind) is not None)
            raise ConfigurationError(f"--option {text!r}: no such extractor; there are {known}.")
        given.setdefault(kind, {})[name] = yaml.safe_load(value)
    if (chosen.get("clip") is None) != (chosen.get("sync") is None):
        raise ConfigurationError(
            "a video has two kinds of features, clip and sync: choose an extractor for each, or "
            "for none."
        )
    made: dict[Kind, ExtractorChoice] = {}
    for kind in KINDS:
        asked = chosen.get(kind)
        if asked is not None:
            parsed = ExtractorChoice.parse(asked)
            made[kind] = ExtractorChoice(parsed.name, parsed.directory, given.get(kind, {}))
    return made
