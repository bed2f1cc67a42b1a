"""One door to every format: :func:`read_manifest`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from voicehub.errors import DataError
from voicehub_data.config import DataSourceConfig
from voicehub_data.manifest.detect import detect_kind
from voicehub_data.manifest.rows import Manifest, RowProblem, raise_problems

Role = Literal["train", "eval"]

# Kind -> module:function; a reader is imported when it is first needed.
_FILE_READERS = {
    "jsonl": "jsonl:read_jsonl",
    "csv": "tables:read_csv",
    "tsv": "tables:read_tsv",
    "ljspeech": "ljspeech:read_ljspeech",
    "commonvoice": "commonvoice:read_commonvoice",
    "kaldi": "kaldi:read_kaldi",
    "folder": "folder:read_folder",
}


def read_manifest(
    source: str | Path | DataSourceConfig | Mapping[str, Any],
    *,
    column_map: Mapping[str, str] | None = None,
    kind: str = "auto",
    role: Role = "train",
    strict: bool = True,
) -> Manifest:
    """Read the rows of a data source; audio files are not opened.

    Args:
        source: a path, or a full :class:`~voicehub_data.config.DataSourceConfig` (or its mapping).
        column_map: field -> column, for tables whose columns have other names.
        kind: ``jsonl``, ``csv``, ``tsv``, ``ljspeech``, ``commonvoice``, ``kaldi``, ``folder``,
            ``datasets``, the name of a plugin, or ``auto`` to tell by what the path holds.
        role: ``eval`` applies ``max_eval_samples_per_dataset`` and reads ``eval_splits``.
        strict: raise on rows that cannot be read and on duplicate ids; else report them in
            ``Manifest.problems``.

    Raises:
        DataError: the source is missing, empty or (strict) has unreadable rows.
        ConfigurationError: the kind or a column is unknown, or a setting does not apply.
    """
    config = _as_config(source, column_map, kind)
    manifest = _read(config, role)
    manifest = _with_duplicate_ids(manifest)
    if strict:
        raise_problems(manifest.path, manifest.problems, len(manifest) + _unread(manifest))
        if not manifest.rows:
            raise DataError(f"{manifest.path}: the manifest is empty; expected at least one row.")
    if role == "eval" and config.max_eval_samples_per_dataset is not None:
        manifest = _evenly_spaced(manifest, config.max_eval_samples_per_dataset)
    return manifest


def _as_config(
    source: str | Path | DataSourceConfig | Mapping[str, Any],
    column_map: Mapping[str, str] | None,
    kind: str,
) -> DataSourceConfig:
    if isinstance(source, DataSourceConfig):
        config = source
    elif isinstance(source, Mapping):
        config = DataSourceConfig.load(source)
    else:
        config = DataSourceConfig.load({"path": str(source)})
    changes: dict[str, Any] = {}
    if column_map is not None:
        changes["column_map"] = dict(column_map)
    if kind != "auto":
        changes["kind"] = kind
    if changes:
        config = DataSourceConfig.load({**config.model_dump(exclude_unset=True), **changes})
    return config


def _read(config: DataSourceConfig, role: Role) -> Manifest:
    kind = config.kind if config.kind != "auto" else detect_kind(Path(config.path).expanduser())
    if kind == "datasets":
        from voicehub_data.manifest.hub_datasets import read_datasets

        return read_datasets(config, role)
    if kind not in _FILE_READERS:
        return _from_plugin(config, role)
    config.require_file_source(kind)
    path = _absolute(Path(config.path).expanduser())
    if not path.exists():
        raise DataError(f"{path}: no such file or directory.")
    root = _absolute(Path(config.audio_root).expanduser()) if config.audio_root else None
    module, _, name = _FILE_READERS[kind].partition(":")
    reader = getattr(import_module(f"voicehub_data.manifest.{module}"), name)
    manifest: Manifest = reader(path, audio_root=root, column_map=config.column_map)
    return manifest


def _from_plugin(config: DataSourceConfig, role: Role) -> Manifest:
    """The manifest of a plugin's source: it is called with the configuration and the role."""
    from voicehub.plugins.groups import DATA_SOURCES
    from voicehub.plugins.loading import load

    source = load(DATA_SOURCES, config.kind)
    manifest = source(config, role) if callable(source) else source
    if not isinstance(manifest, Manifest):
        raise DataError(
            f"{config.path}: the data source {config.kind!r} returned a "
            f"{type(manifest).__name__}; expected voicehub_data.manifest.Manifest."
        )
    return manifest


def _absolute(path: Path) -> Path:
    """Absolute without following links, so that messages show the path the user knows."""
    return path if path.is_absolute() else Path.cwd() / path


def _with_duplicate_ids(manifest: Manifest) -> Manifest:
    """Report every row whose id an earlier row has; ids key random draws and join predictions."""
    counts = Counter(row.id for row in manifest.rows)
    if len(counts) == len(manifest.rows):
        return manifest
    first: dict[str, int] = {}
    problems = list(manifest.problems)
    for row in manifest.rows:
        if row.id in first:
            message = f"id {row.id!r} is taken by row {first[row.id]}; ids must be unique"
            problems.append(RowProblem(row.source, row.row, message, "duplicate-id"))
        else:
            first[row.id] = row.row
    return replace(manifest, problems=tuple(problems))


def _unread(manifest: Manifest) -> int:
    return sum(problem.kind != "duplicate-id" for problem in manifest.problems)


def _evenly_spaced(manifest: Manifest, limit: int) -> Manifest:
    """At most ``limit`` rows, evenly spaced: manifests are often sorted by speaker or length."""
    total = len(manifest.rows)
    if total <= limit:
        return manifest
    rows = [manifest.rows[(i * total) // limit] for i in range(limit)]
    note = f"max_eval_samples_per_dataset: {limit} of {total} rows taken, evenly spaced"
    return manifest.with_rows(rows, note)
