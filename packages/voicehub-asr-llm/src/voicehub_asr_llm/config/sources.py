"""What a run says of its sources: the settings of the ``data:`` section that this family adds.

A training source is a data source (:class:`~voicehub_data.config.DataSourceConfig`) with
declarations: how its transcripts are written, which rows are not wanted, how much of it an epoch
takes. Evaluation sources have none of these, since evaluation data is never filtered.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from voicehub.trainer.section import Section
from voicehub_data.config import (
    DataSourceConfig,
    ExcludeRule,
    NamedDataSources,
    SilenceConfig,
)
from voicehub_data.config.names import NormalizerName


class SpeechSourceConfig(DataSourceConfig):
    """A training source and what is known of it.

    Attributes:
        text_case: ``mono``: transcripts have no case of their own and are truecased; ``cased``:
            they are left as they are; None: not said, left as they are, and noted where they look
            as if they had none.
        text_punct: whether transcripts hold punctuation, which decides the prompt; None looks.
        exclude_where: rows that are not wanted, by their columns.
        target_samples: draws of this source in an epoch, counted after filtering: fewer than there
            are takes others every epoch, more repeats some. None takes each row once.
        epoch_expansion: an epoch takes that many times as many draws.
    """

    text_case: Literal["mono", "cased"] | None = None
    text_punct: bool | None = None
    exclude_where: list[ExcludeRule] = Field(default_factory=list)
    target_samples: Annotated[int, Field(gt=0)] | None = None
    epoch_expansion: Annotated[int, Field(ge=1)] = 1


def _source_from(value: Any) -> Any:
    """A plain path stands for a source of which nothing is declared."""
    return {"path": str(value)} if isinstance(value, str | Path) else value


def _sources_from(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_source_from(item) for item in value]
    if isinstance(value, Mapping) and "path" not in value:
        # Numbered on the command line: data.train.0.path=...
        return value
    return [_source_from(value)]


SpeechSources = Annotated[
    list[SpeechSourceConfig], BeforeValidator(_sources_from), Field(min_length=1)
]
"""One training source or a list of them; a plain path stands for a source."""


class SourcesConfig(Section):
    """Where training and evaluation data come from, and what is left out before training.

    Attributes:
        train: sources with their declarations.
        eval: evaluation splits by name; nothing in them is filtered.
        min_seconds, max_seconds: training clips of these lengths and between are kept.
        truecaser: what ``voicehub data truecaser fit`` wrote; needed where a source is ``mono``.
        silence: draws that become a recording without speech and an empty label.
        metric_normalizer: applied to both sides before words are counted.
        overlapping_ids: ``refuse`` stops where an evaluation row has the id of a training row;
            ``allow`` is for corpora that number their recordings alike.
        max_drop_fraction: stop when more than this share of a source would be dropped, excluded
            rows not counted.
        check: look at every audio file before training: ``headers`` alone, ``decode`` all of it,
            ``auto`` (decode up to two hours of a source) or ``none``.
        workers: threads that read audio files in the check.
    """

    train: SpeechSources
    eval: NamedDataSources = Field(default_factory=dict)
    min_seconds: float = Field(default=0.8, ge=0)
    max_seconds: float = Field(default=19.0, gt=0)
    truecaser: str | None = None
    silence: SilenceConfig = Field(default_factory=SilenceConfig)
    metric_normalizer: NormalizerName = "whisper-english-variants"
    overlapping_ids: Literal["refuse", "allow"] = "refuse"
    max_drop_fraction: float = Field(default=0.2, ge=0, le=1)
    check: Literal["auto", "headers", "decode", "none"] = "auto"
    workers: int = Field(default=2, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.min_seconds > self.max_seconds:
            raise ValueError(
                f"min_seconds {self.min_seconds:g} is over max_seconds {self.max_seconds:g}"
            )
        mono = [source.path for source in self.train if source.text_case == "mono"]
        if mono and self.truecaser is None:
            raise ValueError(
                f"train source {mono[0]} is text_case: mono, and truecaser is not set; make one "
                "with `voicehub data truecaser fit` and name it"
            )
        if self.truecaser is not None and not mono:
            raise ValueError("truecaser is set, but no train source is text_case: mono")
        return self
