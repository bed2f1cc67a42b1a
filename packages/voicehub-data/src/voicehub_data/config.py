"""Typed configuration of data: what a preset's ``data:`` section is made of.

Every model forbids unknown keys; :meth:`DataModel.load` turns pydantic's report into one
:class:`~voicehub.errors.ConfigurationError` that names each key and the nearest valid one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean

SourceKind = Literal[
    "auto", "jsonl", "csv", "tsv", "ljspeech", "commonvoice", "kaldi", "folder", "datasets"
]

# Name of the one evaluation split where a single source is given instead of named ones.
DEFAULT_EVAL_SPLIT = "eval"


class DataModel(BaseModel):
    """Base of the models here: unknown keys are errors, values are not mutated by accident."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> Self:
        """Validate a mapping.

        Raises:
            ConfigurationError: an unknown key (with the nearest valid one) or a wrong value.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            lines = [_describe(cls, item) for item in error.errors(include_url=False)]
            raise ConfigurationError(f"{cls.__name__}: " + "; ".join(lines)) from None


def _describe(model: type[BaseModel], item: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        hint = (
            did_you_mean(str(item["loc"][-1]), model.model_fields) if len(item["loc"]) == 1 else ""
        )
        return f"unknown key {key!r}.{hint}"
    message = str(item["msg"]).removeprefix("Value error, ")
    return f"{key}: {message} (got {item['input']!r})" if key else message


class DataSourceConfig(DataModel):
    """Where rows come from.

    Attributes:
        path: manifest file, directory, or (``kind: datasets``) local data set or Hub id.
        kind: format; ``auto`` tells by what lies at the path.
        column_map: field -> column, where a table's columns have other names. Fields are
            ``audio_filepath, text, duration, offset, speaker, language, id``.
        audio_root: folder that relative audio paths start from; by default the manifest's own.
        name: (datasets) configuration of the data set, e.g. a language.
        revision: (datasets) branch, tag or commit of a Hub data set.
        audio_column, text_column: (datasets) columns; default ``audio`` and ``text``.
        train_splits, eval_splits: (datasets) splits read for each role; default ``train`` and
            ``test``.
        max_eval_samples_per_dataset: at most this many rows for evaluation, evenly spaced.
        dataset_cache_dir: (datasets) where downloads and extracted audio are kept.
    """

    path: str
    kind: SourceKind = "auto"
    column_map: dict[str, str] | None = None
    audio_root: str | None = None
    name: str | None = None
    revision: str | None = None
    audio_column: str = "audio"
    text_column: str = "text"
    train_splits: list[str] = Field(default_factory=lambda: ["train"])
    eval_splits: list[str] = Field(default_factory=lambda: ["test"])
    max_eval_samples_per_dataset: Annotated[int, Field(gt=0)] | None = None
    dataset_cache_dir: str | None = None

    DATASETS_KEYS: ClassVar[frozenset[str]] = frozenset(
        {
            "name",
            "revision",
            "audio_column",
            "text_column",
            "train_splits",
            "eval_splits",
            "dataset_cache_dir",
        }
    )

    @field_validator("path")
    @classmethod
    def _path_is_given(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("expected a path, found empty text")
        return value

    def require_file_source(self, kind: str) -> None:
        """Refuse settings that this kind of source would ignore.

        Raises:
            ConfigurationError: a key of Hugging Face ``datasets`` is set for a file source.
        """
        unread = sorted(
            key
            for key in self.DATASETS_KEYS & self.model_fields_set
            if getattr(self, key) is not None
        )
        if unread:
            raise ConfigurationError(
                f"{self.path}: {', '.join(unread)} apply to kind=datasets only, and this source is "
                f"{kind}. Remove them, or set kind=datasets."
            )


def _source_from(value: Any) -> Any:
    """A plain path stands for a source that has only a path."""
    return {"path": str(value)} if isinstance(value, str | Path) else value


def _sources_from(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else [value]


def _named_sources_from(value: Any) -> Any:
    """One source, a list of them, or a mapping of named ones -> mapping of named ones."""
    if value is None:
        return {}
    if isinstance(value, str | Path | DataSourceConfig):
        return {DEFAULT_EVAL_SPLIT: value}
    if isinstance(value, Mapping):
        return {DEFAULT_EVAL_SPLIT: value} if "path" in value else dict(value)
    if isinstance(value, list | tuple):
        named: dict[str, Any] = {}
        for item in value:
            name = _name_of(item)
            if name in named:
                raise ValueError(
                    f"two evaluation sources would be named {name!r}; give a mapping name: source"
                )
            named[name] = item
        return named
    raise ValueError("expected a path, a source, a list of them or a mapping of named ones")


def _name_of(item: Any) -> str:
    path = item if isinstance(item, str | Path) else _attribute(item, "path")
    name = Path(str(path)).stem
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name) or DEFAULT_EVAL_SPLIT


def _attribute(item: Any, key: str) -> Any:
    return item.get(key, "") if isinstance(item, Mapping) else getattr(item, key, "")


DataSource = Annotated[DataSourceConfig, BeforeValidator(_source_from)]
"""A source, written as a mapping or as a plain path."""

DataSources = Annotated[list[DataSource], BeforeValidator(_sources_from), Field(min_length=1)]
"""One source or a list whose rows are joined: what ``data.train`` is."""

NamedDataSources = Annotated[dict[str, DataSource], BeforeValidator(_named_sources_from)]
"""Evaluation splits: one source (named ``eval``), a list (named by file), or a mapping by name."""


class FilterConfig(DataModel):
    """Which training rows are left out. Evaluation rows are left alone unless asked for.

    Attributes:
        min_duration, max_duration: seconds; bounds are kept.
        min_chars_per_second, max_chars_per_second: rate of speech, transcript characters without
            white space over duration; outside it, text and audio rarely belong together.
        drop_empty_text: drop rows whose text is empty after white space is removed.
        max_drop_fraction: stop with an error when more than this share of the rows would go.
        apply_to_eval: filter evaluation rows too. Figures then describe the kept part alone.
    """

    min_duration: Annotated[float, Field(ge=0)] | None = 0.1
    max_duration: Annotated[float, Field(gt=0)] | None = None
    min_chars_per_second: Annotated[float, Field(ge=0)] | None = None
    max_chars_per_second: Annotated[float, Field(gt=0)] | None = None
    drop_empty_text: bool = True
    max_drop_fraction: Annotated[float, Field(ge=0, le=1)] = 0.5
    apply_to_eval: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_order(self.min_duration, self.max_duration, "duration")
        _check_order(self.min_chars_per_second, self.max_chars_per_second, "chars_per_second")
        return self


def _check_order(low: float | None, high: float | None, name: str) -> None:
    if low is not None and high is not None and low > high:
        raise ValueError(f"min_{name} {low:g} is over max_{name} {high:g}")


Range = tuple[float, float]
Probability = Annotated[float, Field(ge=0, le=1)]


def _finite_range(value: Range) -> Range:
    low, high = value
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ValueError("expected [low, high], finite, low <= high")
    return value


class _TransformConfig(DataModel):
    probability: Probability = 1.0


class GainConfig(_TransformConfig):
    """Gain drawn uniformly in ``decibels`` [low, high]."""

    decibels: Range = (-6.0, 6.0)
    _range = field_validator("decibels")(_finite_range)


class SpeedConfig(_TransformConfig):
    """Speed (tempo and pitch together) drawn from ``factors``; over 1 is faster."""

    factors: Annotated[list[float], Field(min_length=1)] = Field(
        default_factory=lambda: [0.9, 1.0, 1.1]
    )

    @field_validator("factors")
    @classmethod
    def _sensible(cls, value: list[float]) -> list[float]:
        if not all(0.5 <= factor <= 2.0 for factor in value):
            raise ValueError("expected factors between 0.5 and 2")
        return value


class NoiseConfig(_TransformConfig):
    """Noise from a folder of recordings, at a signal-to-noise ratio drawn in ``snr`` decibels."""

    folder: str
    snr: Range = (5.0, 20.0)
    probability: Probability = 0.5
    _range = field_validator("snr")(_finite_range)


class ReverbConfig(_TransformConfig):
    """Reverberation: convolution with an impulse response drawn from a folder."""

    folder: str
    probability: Probability = 0.5


class SpecAugmentConfig(_TransformConfig):
    """Masks on features (Park et al. 2019): widths drawn up to the maxima, within valid frames.

    ``time_mask_max_fraction`` bounds each time mask to a share of the clip's own frames.
    """

    time_masks: Annotated[int, Field(ge=0)] = 2
    time_mask_frames: Annotated[int, Field(ge=0)] = 40
    time_mask_max_fraction: Annotated[float, Field(ge=0, le=1)] = 0.2
    frequency_masks: Annotated[int, Field(ge=0)] = 2
    frequency_mask_bins: Annotated[int, Field(ge=0)] = 15
    mask_value: float = 0.0


class AugmentConfig(DataModel):
    """Augmentations of training audio, applied in this order; absent ones are off."""

    speed: SpeedConfig | None = None
    reverb: ReverbConfig | None = None
    noise: NoiseConfig | None = None
    gain: GainConfig | None = None
    spec_augment: SpecAugmentConfig | None = None


class BatchConfig(DataModel):
    """How rows form batches: by number, or by a hard cap on padded seconds.

    Attributes:
        batch_size: rows a batch; exclusive with ``max_padded_seconds``.
        max_padded_seconds: cap on rows x longest row of every batch, in seconds.
        max_batch_size: cap on rows where ``max_padded_seconds`` is set.
        num_buckets: duration buckets that batches are formed in.
        shuffle: draw a new order every epoch.
        drop_last: drop a last batch that is not full (``batch_size`` only).
    """

    batch_size: Annotated[int, Field(gt=0)] | None = None
    max_padded_seconds: Annotated[float, Field(gt=0)] | None = None
    max_batch_size: Annotated[int, Field(gt=0)] = 64
    num_buckets: Annotated[int, Field(gt=0)] = 16
    shuffle: bool = True
    drop_last: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.batch_size is not None and self.max_padded_seconds is not None:
            raise ValueError("batch_size and max_padded_seconds exclude each other; set one")
        if self.max_padded_seconds is not None and self.drop_last:
            raise ValueError("drop_last applies to batch_size only")
        unread = {"max_batch_size", "num_buckets"} & self.model_fields_set
        if self.batch_size is not None and unread:
            raise ValueError(f"{', '.join(sorted(unread))} apply to max_padded_seconds only")
        return self


class LoaderConfig(DataModel):
    """How batches are loaded; none of this changes what they hold.

    Attributes:
        num_workers: worker processes; 0 loads in the training process.
        prefetch_factor: batches that each worker holds ready.
        pin_memory: page-locked memory for faster copies to a GPU.
    """

    num_workers: Annotated[int, Field(ge=0)] = 0
    prefetch_factor: Annotated[int, Field(gt=0)] = 2
    pin_memory: bool = False
