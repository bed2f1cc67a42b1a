"""Typed configuration of data: what a preset's ``data:`` section is made of.

Every model forbids unknown keys; ``load`` turns pydantic's report into one
:class:`~voicehub.errors.ConfigurationError` that names each key and the nearest valid one.
"""

from __future__ import annotations

from voicehub_data.config.augment import (
    AugmentConfig,
    GainConfig,
    NoiseConfig,
    ReverbConfig,
    SilenceConfig,
    SpecAugmentConfig,
    SpeedConfig,
)
from voicehub_data.config.base import DataModel
from voicehub_data.config.batches import BatchConfig, FilterConfig, LoaderConfig
from voicehub_data.config.exclusion import ExcludeRule
from voicehub_data.config.sources import (
    DEFAULT_EVAL_SPLIT,
    DataSource,
    DataSourceConfig,
    DataSources,
    NamedDataSources,
)
from voicehub_data.config.splits import SplitsConfig

__all__ = [
    "DEFAULT_EVAL_SPLIT",
    "AugmentConfig",
    "BatchConfig",
    "DataModel",
    "DataSource",
    "DataSourceConfig",
    "DataSources",
    "ExcludeRule",
    "FilterConfig",
    "GainConfig",
    "LoaderConfig",
    "NamedDataSources",
    "NoiseConfig",
    "ReverbConfig",
    "SilenceConfig",
    "SpecAugmentConfig",
    "SpeedConfig",
    "SplitsConfig",
]
