"""Where rows come from: one source, a list whose rows are joined, or named evaluation splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean
from voicehub_data.config.base import DataModel

if TYPE_CHECKING:
    from voicehub.models.assets import Asset

BUILT_IN_KINDS = (
    "auto", "jsonl", "csv", "tsv", "ljspeech", "commonvoice", "kaldi", "folder", "datasets",
)  # fmt: skip

# Name of the one evaluation split where a single source is given instead of named ones.
DEFAULT_EVAL_SPLIT = "eval"


class DataSourceConfig(DataModel):
    """Where rows come from.

    Attributes:
        path: manifest file, directory, or (``kind: datasets``) local data set or Hub id.
        kind: one of :data:`BUILT_IN_KINDS`, or the name of a plugin of the entry-point group
            ``voicehub.data_sources``; ``auto`` tells by what lies at the path.
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
    kind: str = "auto"
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

    @field_validator("kind")
    @classmethod
    def _kind_exists(cls, value: str) -> str:
        if value not in BUILT_IN_KINDS:
            from voicehub.plugins.groups import DATA_SOURCES
            from voicehub.plugins.loading import names

            known = (*BUILT_IN_KINDS, *names(DATA_SOURCES))
            if value not in known:
                raise ValueError(
                    f"unknown.{did_you_mean(value, known)} Kinds are {', '.join(known)}"
                )
        return value

    @field_validator("path")
    @classmethod
    def _path_is_given(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("expected a path, found empty text")
        return value

    def assets(self, setting: str) -> list[Asset]:
        """What this source names: a file or directory here, or a data set of a hub."""
        from voicehub.models.assets import Asset

        if self.kind != "datasets" or Path(self.path).expanduser().exists():
            return [Asset(setting, self.path, "file")]
        known = Asset(setting, self.path, "dataset", self.revision, part=self.name)
        return [replace(known, look=self._look, fetch=self._fetch)]

    def _look(self) -> Path | None:
        from voicehub_data.manifest.hub_datasets import cached_dataset

        return cached_dataset(self)

    def _fetch(self) -> object:
        from voicehub_data.manifest.hub_datasets import load_dataset_of

        return load_dataset_of(self)

    def require_file_source(self, kind: str) -> None:
        """Refuse settings that this kind of source would ignore.

        Raises:
            ConfigurationError: a key of Hugging Face ``datasets`` is set for a file source.
        """
        # A resolved configuration states every default; only another value was meant to be read.
        defaults = DataSourceConfig.model_construct(path=self.path)
        unread = sorted(
            key for key in self.DATASETS_KEYS if getattr(self, key) != getattr(defaults, key)
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
