"""The ``after_training`` section of a run's configuration."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.models.assets import Asset
from voicehub_data.config.base import DataModel
from voicehub_data.config.names import ModelTypeName, NormalizerName

MetricName = Literal["wer", "cer", "speaker_similarity", "frechet_distance"]
_NEEDED = {"wer": "recogniser", "cer": "recogniser", "speaker_similarity": "embedder"}


class AfterTrainingConfig(DataModel):
    """Prompts that the finished model makes, and what is measured of them.

    Attributes:
        prompts: texts or mappings of the fields of ``voicehub.models.sampling.Prompt``, or the
            path of a file of them; empty takes ``samples`` prompts of the data.
        samples: prompts of the first evaluation split, or of the training data, spread over it,
            each with its recording beside it for metrics; 0 makes none.
        seed: every prompt's own seed is made of this and its id.
        metrics: by name, of the samples.
        recogniser: who listens for ``wer`` and ``cer``: a model, its run, or a Hub id.
        recogniser_type: its model type, where the directory does not say it.
        embedder: a speaker embedder, for ``speaker_similarity``, likewise.
        normalizer: applied to both texts before they are compared.
        embedding: what ``frechet_distance`` is taken over: frames of ``log-mel``, or one
            embedding a clip of the ``embedder``.
    """

    prompts: str | list[str | dict[str, Any]] = Field(default_factory=list)
    samples: int = Field(default=4, ge=0)
    seed: int = Field(default=0, ge=0)
    metrics: list[MetricName] = Field(default_factory=list)
    recogniser: str | None = None
    recogniser_type: ModelTypeName | None = None
    embedder: str | None = None
    normalizer: NormalizerName = "basic"
    embedding: Literal["log-mel", "embedder"] = "log-mel"

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for metric in self.metrics:
            listener = _NEEDED.get(metric)
            if metric == "frechet_distance" and self.embedding == "embedder":
                listener = "embedder"
            if listener is not None and getattr(self, listener) is None:
                raise ValueError(f"the metric {metric!r} needs after_training.{listener}")
        if self.metrics and not self.prompts and not self.samples:
            raise ValueError("metrics need samples: set samples over 0, or give prompts")
        return self

    def assets(self, setting: str) -> list[Asset]:
        """What it names outside the configuration."""
        found = [
            Asset(f"{setting}.{name}", source)
            for name in ("recogniser", "embedder")
            if (source := getattr(self, name)) is not None
        ]
        if isinstance(self.prompts, str):
            found.append(Asset(f"{setting}.prompts", self.prompts, kind="file"))
        return found
