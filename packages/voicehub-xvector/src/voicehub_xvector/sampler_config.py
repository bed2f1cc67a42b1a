"""Settings of the samplers; all of them keep the same hard cap on a batch's padded seconds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.trainer.section import Section

Seconds = Annotated[float, Field(gt=0)]


class _Capped(Section):
    max_padded_seconds: Seconds = 120.0
    max_batch_size: int = Field(default=128, ge=1)


class BucketedConfig(_Capped):
    """Whole recordings of similar duration together, each once an epoch.

    Attributes:
        max_padded_seconds: cap on recordings x longest, in seconds.
        max_batch_size: cap on recordings.
        num_buckets: groups of similar duration that batches are drawn in; by default as many as
            the amount of data allows, from 16 to 100.
    """

    kind: Literal["bucketed"] = "bucketed"
    num_buckets: int | None = Field(default=None, ge=1)


class _Chunked(_Capped):
    chunk_seconds: tuple[Seconds, Seconds] = (3.0, 3.0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.chunk_seconds
        if low > high:
            raise ValueError(f"chunk_seconds: {low:g} is over {high:g}")
        if high > self.max_padded_seconds:
            raise ValueError(
                f"chunk_seconds {high:g} is over max_padded_seconds {self.max_padded_seconds:g}"
            )
        return self


class RandomChunkConfig(_Chunked):
    """A random piece of every recording, each recording once an epoch.

    Attributes:
        max_padded_seconds: cap on pieces x longest, in seconds.
        max_batch_size: cap on pieces.
        chunk_seconds: shortest and longest piece; one length is drawn for a batch. Shorter
            recordings are taken whole; for an ECAPA head they are repeated to that length.
    """

    kind: Literal["random-chunk"] = "random-chunk"


class ClassWeightedConfig(_Chunked):
    """Random pieces of speakers drawn with a chance of (their recordings)^exponent.

    Attributes:
        max_padded_seconds, max_batch_size, chunk_seconds: as of random pieces.
        exponent: 1 draws as the data is; 0 draws all speakers alike.
    """

    kind: Literal["class-weighted"] = "class-weighted"
    exponent: float = Field(default=0.5, ge=0)


class HardPrototypesConfig(_Chunked):
    """Batches of speakers whose prototypes lie near each other.

    Attributes:
        max_padded_seconds, max_batch_size, chunk_seconds: as of random pieces.
        exponent: chance of a batch's first speakers, as of class-weighted drawing.
        neighbours: nearest speakers that join each of them.
        per_speaker: recordings of each speaker in a batch.
    """

    kind: Literal["hard-prototypes"] = "hard-prototypes"
    exponent: float = Field(default=0.5, ge=0)
    neighbours: int = Field(default=8, ge=1)
    per_speaker: int = Field(default=1, ge=1)


SamplerConfig = Annotated[
    BucketedConfig | RandomChunkConfig | ClassWeightedConfig | HardPrototypesConfig,
    Field(discriminator="kind"),
]
